"""Activation checkpointing: what backward keeps is decided for the whole graph, so the function is just called."""

from __future__ import annotations

from armature.plugin_api import Call, Value, existing, handles

UNSUPPORTED = ("context_fn", "debug", "early_stop")


@handles(*existing("torch.utils.checkpoint.checkpoint"))
def checkpoint(
    call: Call,
    function: Value,
    *args: Value,
    use_reentrant: Value | None = None,
    preserve_rng_state: Value | None = None,
    determinism_check: Value | None = None,
    **kwargs: Value,
) -> Value | None:
    """Trace into the function. The reentrant form treats gradients of its inputs in its own way, and is left alone."""
    if use_reentrant is None or not use_reentrant.is_constant or use_reentrant.as_constant() is not False:
        return None
    if any(name in kwargs for name in UNSUPPORTED):
        return None
    return call.inline(function, *args, **kwargs)


@handles(*existing("torch.utils.checkpoint.checkpoint_sequential"))
def checkpoint_sequential(
    call: Call, functions: Value, segments: Value, input: Value, use_reentrant: Value | None = None, **kwargs: Value
) -> Value | None:
    """The same for the parts of a sequence: a loop over calls of the above."""
    if use_reentrant is None or not use_reentrant.is_constant or use_reentrant.as_constant() is not False:
        return None
    return call.polyfill(call.fn, functions, segments, input, use_reentrant=use_reentrant, **kwargs)
