"""Seam to torch's registry of decompositions; makes decompositions preserve the layout of an operator's results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from armature.torch_abi.fake_rules import FakeRules

Overload = torch._ops.OpOverload


undecomposed: Callable[[], Any] = torch._C._AutoDispatchBelowAutograd
"""A context in which operators are called below autograd, and so below the decompositions that torch has there."""


def torch_decompositions(ops: Iterable[Overload]) -> Mapping[Overload, Callable[..., Any]]:
    """torch's decomposition of each operator that has one."""
    return {op: decomposition_table[op] for op in ops if op in decomposition_table}


def overload(name: str) -> Overload | None:
    """The operator "add.Tensor" of namespace aten, or None if this torch does not have it."""
    packet, _, which = name.partition(".")
    found = getattr(getattr(torch.ops.aten, packet, None), which or "default", None)
    return found if isinstance(found, Overload) else None


def keeping_layout(rules: FakeRules, op: Overload, fn: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition whose result has the operator's own layout, whatever the operators that compute it would
    produce."""
    rule = rules.layout_of(op)
    if rule is None:
        return fn

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        if not isinstance(result, FakeTensor):
            return result
        with _disable_current_modes(), result.fake_mode:
            in_layout = rule(args, result)
        return result if in_layout is result or _has_same_layout(in_layout, result) else _copied_as(in_layout, result)

    return call


def _has_same_layout(like: torch.Tensor, result: torch.Tensor) -> bool:
    """Whether two tensors place each element alike: strides along axes of size 1 do not matter."""
    pairs = zip(like.shape, like.stride(), result.stride(), strict=True)
    return like.numel() == 0 or all(size == 1 or one == other for size, one, other in pairs)


def _copied_as(like: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    steps = like.stride()
    order = sorted(range(like.dim()), key=lambda axis: (-steps[axis], axis))
    dense = result.permute(order).clone(memory_format=torch.contiguous_format)
    return dense.permute([order.index(axis) for axis in range(like.dim())])
