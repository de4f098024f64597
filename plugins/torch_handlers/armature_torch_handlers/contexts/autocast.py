"""Autocast: its context manager is Python over a few primitives, each of which becomes a node and takes effect."""

from __future__ import annotations

import torch
from torch import fx

from armature.plugin_api import Call, Value, existing, handles


@handles(
    *existing(
        "torch.set_autocast_enabled",
        "torch.set_autocast_dtype",
        "torch.set_autocast_cache_enabled",
        "torch.autocast_increment_nesting",
        "torch.autocast_decrement_nesting",
        "torch.clear_autocast_cache",
    )
)
def primitive_of_autocast(call: Call, *args: Value) -> Value | None:
    """Record it, and answer what it answers now: the depth of nesting, or None."""
    if not all(value.is_constant for value in args):
        return None
    fx.node.has_side_effect(call.fn)  # nothing uses the result: removing dead code would remove the node
    return call.graph_call(call.fn, *args)


@handles(*existing("torch.amp.autocast_mode.is_autocast_available"))
def is_available(call: Call, device_type: Value) -> Value | None:
    """A fact about this build of torch."""
    if not device_type.is_constant:
        return None
    return call.constant(torch.amp.is_autocast_available(str(device_type.as_constant())))
