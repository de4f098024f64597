"""What torch's public functions leave on a program's functions for compilers to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch._subclasses.fake_tensor import unset_fake_temporarily


def assumed_constant(fn: object) -> bool:
    """Whether `torch.compiler.assume_constant_result` was applied to a function."""
    held: Mapping[str, Any] = getattr(fn, "__dict__", {})
    return held.get("_dynamo_marked_constant") is True


def unpatched(fn: Any) -> Callable[..., Any] | None:
    """The `nn.Module.__init__` that torch.compile has put a wrapper of its own around; None for other functions."""
    if getattr(fn, "__module__", "") != "torch._dynamo.mutation_guard" or "init" not in fn.__code__.co_freevars:
        return None
    found: Callable[..., Any] = fn.__closure__[fn.__code__.co_freevars.index("init")].cell_contents
    return found


def call_for_real(fn: Callable[..., Any], args: list[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function with no fake tensors about."""
    with unset_fake_temporarily():
        return fn(*args, **kwargs)
