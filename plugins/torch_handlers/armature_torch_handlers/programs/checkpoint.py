"""Activation checkpointing: what to save for backward is decided for the whole graph, so the function is just
called."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import torch

from armature.plugin_api import (
    Call,
    NotConstant,
    TracedTensor,
    Value,
    existing,
    handles,
)

NO_CONTEXTS = existing("torch.utils.checkpoint.noop_context_fn")
SELECTIVE = existing("torch.utils.checkpoint.create_selective_checkpoint_contexts")


@handles(*existing("torch.utils.checkpoint.checkpoint"))
def checkpoint(
    call: Call,
    function: Value,
    *args: Value,
    use_reentrant: Value | None = None,
    preserve_rng_state: Value | None = None,
    determinism_check: Value | None = None,
    early_stop: Value | None = None,
    context_fn: Value | None = None,
    **kwargs: Value,
) -> Value | None:
    """Trace into the function."""
    if use_reentrant is None or not use_reentrant.is_constant or "debug" in kwargs:
        return None
    if use_reentrant.as_constant() is True and context_fn is None:
        return reentrant(call, function, args, kwargs)
    if use_reentrant.as_constant() is not False or not (context_fn is None or only_chooses(call, context_fn)):
        return None
    return call.inline(function, *args, **kwargs)


def only_chooses(call: Call, context_fn: Value) -> bool:
    """Whether the contexts made by a function only choose what is saved for backward."""
    partial = context_fn.python_type() is functools.partial
    try:
        made_by = (context_fn.get_attribute(call.tracing, "func") if partial else context_fn).as_object()
    except NotConstant:
        return False
    return any(made_by is known for known in (*NO_CONTEXTS, *SELECTIVE))


def reentrant(call: Call, function: Value, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    """The reentrant form, an autograd function: it only tracks tensors passed and returned directly, not in
    containers."""
    if kwargs:
        return None
    follows = any(isinstance(arg, TracedTensor) and arg.fake.requires_grad for arg in args)
    if not follows or not torch.is_grad_enabled():
        made = call.polyfill(unfollowed, function, *args)
    else:
        made = call.inline(function, *args)
    results = call.tracing.unpack(made) if made.python_type() is tuple else [made]
    for result in results:
        known, fits = result.is_constant, True
        if isinstance(result, TracedTensor):
            known = known or (result.real is None and result not in args)
            is_number = result.dtype.is_floating_point or result.dtype.is_complex
            fits = not is_number or result.fake.requires_grad == (follows and torch.is_grad_enabled())
        if not known or not fits:
            call.graph_break("reentrant-checkpoint")
    return made


def unfollowed(function: Callable[..., object], *args: object) -> object:
    """The function without gradients: if no input requires them, nothing is tracked, not even the function's
    parameters."""
    torch.utils.checkpoint.check_backward_validity(args)
    with torch.no_grad():
        return function(*args)


@handles(*existing("torch.utils.checkpoint.checkpoint_sequential"))
def checkpoint_sequential(
    call: Call, functions: Value, segments: Value, input: Value, use_reentrant: Value | None = None, **kwargs: Value
) -> Value | None:
    """Checkpoints the parts of a sequence: torch's Python code, which calls `checkpoint` in a loop, is traced."""
    if use_reentrant is None or not use_reentrant.is_constant or use_reentrant.as_constant() is None:
        return None
    return call.polyfill(call.fn, functions, segments, input, use_reentrant=use_reentrant, **kwargs)
