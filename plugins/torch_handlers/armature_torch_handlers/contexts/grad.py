"""Grad mode: `no_grad`, `enable_grad` and `set_grad_enabled`, as contexts, decorators and calls; inference mode."""

from __future__ import annotations

from typing import Any

import torch

from armature.plugin_api import (
    Call,
    ContextValue,
    Value,
    existing,
    grad_mode_value,
    handles,
    inference_mode_value,
    switch_grad,
)


@handles(torch.no_grad, torch.enable_grad)
def grad_mode(call: Call, *args: Value, **kwargs: Value) -> Value:
    """The context manager; as a decorator without parentheses it changes a function for good."""
    kind: Any = call.fn
    if args or kwargs:
        call.graph_break("grad-mode-decorator", function=f"torch.{kind.__name__}")
    return grad_mode_value(torch.enable_grad if kind is torch.enable_grad else torch.no_grad, kind is torch.enable_grad)


@handles(torch.set_grad_enabled)
def set_grad_enabled(call: Call, mode: Value) -> Value:
    """Takes effect at once, also where no `with` follows."""
    enabled = switch(call, mode)
    made = grad_mode_value(torch.set_grad_enabled, enabled)
    switch_grad(call.tracing, enabled)
    return made


@handles(*existing("torch._C._set_grad_enabled"))
def set_grad_primitive(call: Call, enabled: Value) -> Value:
    """What all of them end in."""
    switch_grad(call.tracing, switch(call, enabled))
    return call.constant(None)


def switch(call: Call, mode: Value) -> bool:
    """The bool that a mode is. Anything else is refused as torch does."""
    if (kind := mode.python_type()) is not bool:
        message = f"set_grad_enabled(): argument 'enabled' (position 1) must be bool, not {kind.__name__}"
        call.tracing.raise_error(TypeError, message)
    return mode.truth(call.tracing)


@handles(*existing("torch.utils._contextlib._DecoratorContextManager.clone", "torch.inference_mode.clone"))
def clone(call: Call, self: Value) -> Value | None:
    """A decorator makes a fresh context for each call."""
    return self.again() if isinstance(self, ContextValue) else None


@handles(torch.inference_mode)
def inference_mode(call: Call, mode: Value | None = None) -> Value | None:
    """The context manager; as a decorator without parentheses it decorates."""
    if mode is None:
        return inference_mode_value(True)
    if mode.python_type() is bool:
        return inference_mode_value(mode.truth(call.tracing))
    return inference_mode_value(True).call(call.tracing, (mode,), {})


@handles(
    *existing(
        "torch._C._InferenceMode",
        "torch.autograd.grad_mode._enter_inference_mode",
        "torch.autograd.grad_mode._exit_inference_mode",
    )
)
def inference_primitive(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """What nothing in a graph would leave again where an error goes past."""
    call.graph_break("inference-mode", operation=call.fn.__name__)
