"""Grad mode: `no_grad`, `enable_grad` and `set_grad_enabled`, as contexts, decorators and calls; inference mode."""

from __future__ import annotations

import attrs
import torch

from armature.plugin_api import (
    AttrSource,
    Call,
    ConstantValue,
    ContextValue,
    PairedContextValue,
    Rebuilding,
    Source,
    Tracing,
    Value,
    ValueType,
    Write,
    existing,
    grad_modes,
    handles,
    put_grad,
)


@attrs.define(eq=False)
class GradModeValue(ContextValue):
    """torch.no_grad(), torch.enable_grad(), torch.set_grad_enabled(mode).

    prev: the mode to restore on leaving, as stored by the object itself; None: unknown, or not set yet. obj: the
    program's own object, if it was made before the frame.
    """

    enabled: bool
    prev: bool | None = None
    obj: object = None

    def enter(self, tracer: Tracing) -> Value:
        if self.kind is not torch.set_grad_enabled:  # set_grad_enabled takes effect when it is made
            self.prev = torch.is_grad_enabled()
            tracer.effects.record(self)
        switch_grad(tracer, self.enabled)
        return tracer.constant(None)

    def leave(self, tracer: Tracing) -> None:
        before = self._before(tracer)
        if before is None:
            tracer.graph_break("exit-without-enter", type=self.describe())
        switch_grad(tracer, before)

    def _before(self, tracer: Tracing) -> bool | None:
        if self.prev is None and self.source is not None and hasattr(self.obj, "prev"):
            self.prev = bool(tracer.objects.wrap(self.obj.prev, AttrSource(self.source, "prev")).as_constant())
        return self.prev

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name == "mode" and self.kind is torch.set_grad_enabled:
            return tracer.constant(self.enabled)
        if name == "prev" and self._before(tracer) is not None:
            return tracer.constant(self.prev)
        return super().get_attribute(tracer, name)

    def clone(self) -> Value:
        return grad_mode_value(self.kind, self.enabled)

    def rebuild(self, out: Rebuilding) -> None:
        if self.kind is not torch.set_grad_enabled:
            out.null_function(self.kind)
            out.call(0)
        else:
            out.null_function(object.__new__)  # calling the class would switch the mode
            out.constant(self.kind)
            out.call(1)
            out.store_attribute("mode", ConstantValue(self.enabled))
        if self.prev is not None:
            out.store_attribute("prev", ConstantValue(self.prev))

    def writes(self, out: Rebuilding) -> list[Write]:
        return [Write(setattr, (self, out.value("prev"), out.value(self.prev)))]


def grad_mode_value(kind: type, enabled: bool) -> GradModeValue:
    """The value of a new context manager of this kind."""
    now = {torch.no_grad: False, torch.set_grad_enabled: torch.is_grad_enabled()}
    return GradModeValue(kind, enabled, now.get(kind))


def switch_grad(tracer: Tracing, enabled: bool) -> None:
    """Set the grad mode now and in the graph."""
    if tracer.overrides.has_modes:
        tracer.as_value(grad_modes.set_grad_enabled).call(tracer, (tracer.constant(enabled),), {})
    else:
        put_grad(tracer, enabled)


@attrs.define(eq=False)
class InferenceModeValue(PairedContextValue):
    """torch.inference_mode(mode)."""

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name == "mode":
            return tracer.constant(self.arguments[0])
        return super().get_attribute(tracer, name)

    def enter(self, tracer: Tracing) -> Value:
        super().enter(tracer)
        return tracer.constant(None)

    def clone(self) -> Value:
        return inference_mode_value(bool(self.arguments[0]))


def inference_mode_value(enabled: bool, source: Source | None = None) -> Value:
    """The value of `torch.inference_mode(enabled)`."""
    kind = torch.inference_mode
    return InferenceModeValue(
        kind, grad_modes.enter_inference, (enabled,), grad_modes.exit_inference, kind, source=source
    )


@handles(torch.no_grad, torch.enable_grad)
def grad_mode(call: Call, *args: Value, **kwargs: Value) -> Value:
    """The context manager; as a decorator without parentheses it changes a function permanently."""
    kind = call.fn
    if args or kwargs:
        call.graph_break("grad-mode-decorator", function=f"torch.{kind.__name__}")
    return grad_mode_value(torch.enable_grad if kind is torch.enable_grad else torch.no_grad, kind is torch.enable_grad)


@handles(torch.set_grad_enabled)
def set_grad_enabled(call: Call, mode: Value) -> Value:
    """Takes effect at once, even without a `with`."""
    enabled = switch(call, mode)
    made = grad_mode_value(torch.set_grad_enabled, enabled)
    switch_grad(call.tracing, enabled)
    return made


@handles(*existing("torch._C._set_grad_enabled"))
def set_grad_primitive(call: Call, enabled: Value) -> Value:
    """The function that all of them finally call."""
    switch_grad(call.tracing, switch(call, enabled))
    return call.constant(None)


def switch(call: Call, mode: Value) -> bool:
    """The bool of a mode. Other types are refused as in torch."""
    if (kind := mode.python_type()) is not bool:
        message = f"set_grad_enabled(): argument 'enabled' (position 1) must be bool, not {kind.__name__}"
        call.tracing.raise_error(TypeError, message)
    return mode.truth(call.tracing)


@handles(*existing("torch.utils._contextlib._DecoratorContextManager.clone", "torch.inference_mode.clone"))
def clone(call: Call, self: Value) -> Value | None:
    """A fresh context for each call of a decorated function."""
    return self.clone() if isinstance(self, ContextValue) else None


@handles(torch.inference_mode)
def inference_mode(call: Call, mode: Value | None = None) -> Value | None:
    """The context manager; without parentheses it is a decorator."""
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
    """Break the graph: if an error is raised inside, nothing in the graph would leave the mode."""
    call.graph_break("inference-mode", operation=call.fn.__name__)


GradMode = torch.no_grad | torch.enable_grad | torch.set_grad_enabled


def of_program(obj: GradMode, source: Source, tracer: Tracing) -> Value:
    """A context manager of a grad mode that was made before the frame."""
    enabled = type(obj) is torch.enable_grad
    if type(obj) is torch.set_grad_enabled:
        enabled = bool(tracer.objects.wrap(obj.mode, AttrSource(source, "mode")).as_constant())
    return GradModeValue(type(obj), enabled, obj=obj, source=source)


def inference_of_program(obj: torch.inference_mode, source: Source, tracer: Tracing) -> Value:
    """A context manager of inference mode that was made before the frame."""
    enabled = tracer.objects.wrap(obj.mode, AttrSource(source, "mode"))
    return inference_mode_value(bool(enabled.as_constant()), source)


VALUE_TYPES = (
    *(ValueType(kind, of_program) for kind in (torch.no_grad, torch.enable_grad, torch.set_grad_enabled)),
    ValueType(torch.inference_mode, inference_of_program),
)
