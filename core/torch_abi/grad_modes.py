"""Switches of torch's state that occur in captured graphs, and how to read and restore each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
import torch
import torch.amp.autocast_mode
from torch.fx import traceback

set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled
set_default_dtype: Callable[[torch.dtype], None] = torch._C._set_default_dtype
enter_autocast: Callable[..., Any] = torch.amp.autocast_mode._enter_autocast
exit_autocast: Callable[[Any], Any] = torch.amp.autocast_mode._exit_autocast
enter_inference: Callable[[bool], Any] = torch.autograd.grad_mode._enter_inference_mode
exit_inference: Callable[[Any], Any] = torch.autograd.grad_mode._exit_inference_mode

# Device types that torch has autocast and a module for. Those of other libraries are known once they are registered.
AUTOCAST_DEVICES = tuple(kind for kind in torch._C._autocast_supported_devices() if hasattr(torch, kind))

LEVELS = torch._C._functorch


def with_default_dtype(dtype: torch.dtype, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function to run with `dtype` as torch's default dtype."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before = torch.get_default_dtype()
        set_default_dtype(dtype)
        try:
            return function(*args, **kwargs)
        finally:
            set_default_dtype(before)

    vars(call)["in_default_dtype"] = function
    call.__name__ = f"{getattr(function, '__name__', 'call')}_in_{str(dtype).removeprefix('torch.')}"
    return call


@attrs.frozen
class Switch:
    """A piece of torch's state: `restore` takes the result of `read`."""

    read: Callable[[], Any]
    restore: Callable[[Any], Any]


def in_dual_level() -> bool:
    """Whether forward mode is inside a level: torch allows only one."""
    try:
        level = torch._C._enter_dual_level()
    except RuntimeError:
        return True
    torch._C._exit_dual_level(level)
    return False


def leave_dual_level(inside: bool) -> None:
    """Leave the level if there was none before."""
    if not inside and in_dual_level():
        torch._C._exit_dual_level(0)


# By the name that torch gives the kind of a level.
LEAVE_LEVEL: Mapping[str, Callable[[], Any]] = {
    "Grad": LEVELS._grad_decrement_nesting,
    "Jvp": LEVELS._jvp_decrement_nesting,
    "Vmap": LEVELS._vmap_decrement_nesting,
    "Functionalize": LEVELS._func_decrement_nesting,
}


def leave_transforms(depth: int) -> None:
    """Leave levels of transforms down to this depth; torch's own function leaves two at a time (2.11)."""
    while LEVELS.get_dynamic_layer_stack_depth() > depth:
        LEAVE_LEVEL[LEVELS.peek_interpreter_stack().key().name]()


GRAD_MODE = Switch(torch.is_grad_enabled, set_grad_enabled)
FORWARD_MODE = Switch(torch._C._is_fwd_grad_enabled, torch._C._set_fwd_grad_enabled)
IN_PLACE = Switch(LEVELS.get_inplace_requires_grad_allowed, LEVELS.set_inplace_requires_grad_allowed)
TRANSFORMS = Switch(LEVELS.get_dynamic_layer_stack_depth, leave_transforms)
DUAL_LEVEL = Switch(in_dual_level, leave_dual_level)
# Passes of torch turn it off temporarily; a context entered then and left later would turn it off for good.
AUTOCAST_CACHE = Switch(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled)

# Functions that enter a level of a transform, and that leave one.
NESTING: Mapping[object, int] = {
    **{getattr(LEVELS, f"_{kind}_increment_nesting"): 1 for kind in ("grad", "jvp", "vmap")},
    **{getattr(LEVELS, f"_{kind}_decrement_nesting"): -1 for kind in ("grad", "jvp", "vmap")},
}

# The state that a function in a graph changes without an object that could restore it.
CHANGED_BY: Mapping[object, Switch] = {
    set_grad_enabled: GRAD_MODE,
    torch._C._set_fwd_grad_enabled: FORWARD_MODE,
    LEVELS.set_inplace_requires_grad_allowed: IN_PLACE,
    **dict.fromkeys(NESTING, TRANSFORMS),
    torch._C._enter_dual_level: DUAL_LEVEL,
    torch._C._exit_dual_level: DUAL_LEVEL,
}


@contextmanager
def switches_set_back() -> Iterator[None]:
    """A context that restores everything that functions of `CHANGED_BY`, and torch's own passes, change."""
    switches = (AUTOCAST_CACHE, *dict.fromkeys(CHANGED_BY.values()))
    before = [switch.read() for switch in switches]
    # torch's passes write to it, then put a copy made before in its place: code that was traced knows this very dict.
    meta = traceback.current_meta
    traceback.current_meta = meta.copy()
    try:
        yield
    finally:
        traceback.current_meta = meta
        # The grad mode last: leaving a level of transforms sets it to its value at entry.
        for switch, known in reversed([*zip(switches, before, strict=True)]):
            switch.restore(known)
