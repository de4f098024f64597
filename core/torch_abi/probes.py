"""Finds arguments that CPU kernels refuse though torch's meta functions accept them, as in `torch.arange(3,
dtype=torch.bool)` and `integers.mul_(0.5)`: the kernel is called on small tensors to see whether it raises."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

import torch

from armature.torch_abi.computing import undisturbed
from armature.torch_abi.symbols import SYMBOLIC

MOST = 1 << 16  # largest result of a kernel that is called with the program's own arguments, in elements
Probe = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Exception | None]
"""The error that the kernel of an operator raises for the dtypes and numbers of a call on fakes; None: none."""


class Probed(enum.Enum):
    """How a kernel is tried. SMALL: by a call with few elements. AS_CALLED: with the program's own numbers, for kernels
    that decide by the length of the result."""

    SMALL = "small"
    AS_CALLED = "as called"


def small(value: Any) -> Any:
    """The given size, but at most 2. (Not 1, because kernels have fast paths for a single element.)"""
    return value if value is None else min(value, 2) if type(value) is int else 2


def sizes(value: Any) -> Any:
    """Small sizes in place of the given ones; a size of 0 stays 0."""
    return [small(size) for size in value]


def plain(value: Any) -> Any:
    """A small real tensor of the same dtype; anything else unchanged."""
    return torch.ones(sizes(value.shape), dtype=value.dtype) if isinstance(value, torch.Tensor) else value


BY_NAME: Mapping[str, Callable[[Any], Any]] = MappingProxyType({
    "size": sizes, "steps": small, "window_length": small, "n": small, "m": small, "num_samples": small,
})  # fmt: skip


def of_operator(op: torch._ops.OpOverload, probed: Probed | None) -> Probe | None:
    """The function that tries the kernel of an operator; None if it is not tried."""
    if probed is not None:
        return refused if probed is Probed.SMALL else refused_as_called
    pointwise = torch.Tag.pointwise in op.tags and torch.Tag.nondeterministic_seeded not in op.tags
    return refused_kinds if pointwise else None


def refused(op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Exception | None:
    """The kernel's error for a call with fewer elements."""
    return _error(op, args, kwargs, BY_NAME)


def refused_as_called(op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Exception | None:
    """The kernel's error for a call with these numbers; not tried, and None, if the result would be large."""
    large = any(isinstance(n, (int, float)) and abs(n) > MOST for n in args)
    return None if large else _error(op, args, kwargs, {})


def _error(
    op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], reduced: Mapping[str, Callable[[Any], Any]]
) -> Exception | None:
    """The error that the kernel raises for a call. reduced: by argument name, a function that returns a smaller value
    to use instead."""
    if not on_cpu(args, kwargs):
        return None
    names = [argument.name for argument in op._schema.arguments]
    draws = torch.Tag.nondeterministic_seeded in op.tags
    keeping: AbstractContextManager[Any] = torch.random.fork_rng(devices=()) if draws else nullcontext()
    with undisturbed(), keeping:
        given = [reduced.get(name, plain)(value) for name, value in zip(names, args)]
        named = {name: reduced.get(name, plain)(value) for name, value in kwargs.items() if name != "generator"}
        if any(isinstance(value, SYMBOLIC) for value in (*given, *named.values())):
            return None  # this depends on the numbers of a single call, so it is not cached
        try:
            op(*given, **named)
        except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            return error
    return None


def refused_kinds(op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Exception | None:
    """The error of an elementwise operator with integers, bools or complex numbers, which many kernels refuse. It
    depends only on dtypes and plain numbers, so each combination is tried once."""
    if all(one.is_floating_point() for one in args if isinstance(one, torch.Tensor)) or not on_cpu(args, kwargs):
        return None
    values = (*args, *kwargs.values())
    if any(isinstance(value, SYMBOLIC) or not isinstance(value, Hashable) for value in values):
        return None
    found = _of_kinds(op, tuple(map(_kind, args)), tuple((name, _kind(value)) for name, value in kwargs.items()))
    return None if found is None else found[0](found[1])


def _kind(value: Any) -> tuple[Any, Any]:
    """The key of an argument: a tensor's dtype and small sizes for it, or a plain value with its type."""
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(sizes(value.shape))
    return type(value), value


@functools.lru_cache(maxsize=4096)
def _of_kinds(
    op: Any, args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]
) -> tuple[type[Exception], str] | None:
    """The class and text of the error for small operands of these kinds."""

    def example(kind: tuple[Any, Any]) -> Any:
        first, second = kind
        return torch.ones(second, dtype=first) if isinstance(first, torch.dtype) else second

    with undisturbed():
        try:
            op(*map(example, args), **{name: example(kind) for name, kind in kwargs})
        except (NotImplementedError, RuntimeError) as error:
            return type(error), str(error)
    return None


def on_cpu(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operator runs on a CPU, on plain tensors."""
    tensors = [one for one in args if isinstance(one, torch.Tensor)]
    device = kwargs.get("device") or (tensors[0].device if tensors else torch.get_default_device())
    usual = all(one.layout is torch.strided and not one.is_quantized for one in tensors)
    return torch.device(device).type == "cpu" and kwargs.get("layout") in (None, torch.strided) and usual
