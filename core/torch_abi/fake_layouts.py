"""Computes the layouts that torch's kernels give to results, for operators whose meta functions return others. Plugins
say which operators those are (`Operator.relaid`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

Ints = Sequence[int]
CHANNELS_LAST: Mapping[int, tuple[Ints, ...]] = {4: ((0, 2, 3, 1),), 5: ((0, 2, 3, 4, 1),)}  # orders of axes
Rule = Callable[[Sequence[Any], Any], Any]
"""The result of an operator in the layout of its kernel, given its arguments and what torch says."""


def suggested_format(tensor: torch.Tensor) -> torch.memory_format:
    """Channels last if the strides of a tensor are in that order, else row-major."""
    found: torch.memory_format = suggest_memory_format(tensor)
    return found


def as_iterated(args: Sequence[Any], result: Any) -> Any:
    """The layout that TensorIterator chooses for a result of its operands. torch ignores the strides of axes of size 1,
    by which a following convolution or norm may take its input for channels last."""
    return _iterated(args, result, numbers=any(isinstance(arg, (bool, int, float, complex)) for arg in args[:2]))


def without_numbers(args: Sequence[Any], result: Any) -> Any:
    """Like `as_iterated`, for kernels that do not treat a number among the arguments as an operand."""
    return _iterated(args, result, numbers=False)


def as_first(args: Sequence[Any], result: Any) -> Any:
    """The first argument's layout, including strides of axes of size 1, if it is dense; there may be several
    results."""
    if not isinstance(result, torch.Tensor):
        return type(result)(as_first(args, one) for one in result)
    given = args[0]
    if not isinstance(given, torch.Tensor):  # under vmap, a number of the program is converted to a tensor's dtype
        return result
    if not is_static(given) or given.stride() == result.stride() or not _is_dense(given.shape, given.stride()):
        return result
    return result.new_empty_strided(given.shape, given.stride())


AS_TENSORS_SAY: frozenset[Rule | None] = frozenset({as_iterated, without_numbers, as_first})
"""The rules that make tensors like those given, and so need no fake mode around them."""


def _iterated(args: Sequence[Any], result: Any, numbers: bool) -> Any:
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if not all(map(is_static, (*tensors, result))):  # comparing unbacked sizes breaks the graph
        return result
    alike = all(one.stride() == result.stride() and one.shape == result.shape for one in tensors)
    if alike and 1 not in result.shape:
        return result
    strides = iterated_strides(result.shape, [(one.shape, one.stride()) for one in tensors], numbers)
    if strides == result.stride():
        return result
    return result.new_empty_strided(result.shape, strides)


def is_static(tensor: Any) -> bool:
    """Whether no size and no stride of a fake is a symbol."""
    return all(type(number) is int for number in (*tensor.shape, *tensor.stride()))


def iterated_strides(sizes: Ints, operands: Sequence[tuple[Ints, Ints]], numbers: bool) -> tuple[int, ...]:
    """The strides of a new TensorIterator result: those that all operands share, or else dense ones in the order of the
    operands' strides, the first operand first. numbers: whether a number is among the operands."""
    if not numbers and all(shape == sizes for shape, _ in operands):
        for order in (range(len(sizes)), *CHANNELS_LAST.get(len(sizes), ())):
            dense = dense_strides(sizes, order)
            if all(_has_strides_of(strides, dense, sizes) for _, strides in operands):
                return dense
        first = operands[0][1]
        if all(strides == first for _, strides in operands) and _is_dense(sizes, first):
            return tuple(first)
    return dense_strides(sizes, _order_of_axes(sizes, [_broadcast(sizes, *one) for one in operands]))


def dense_strides(sizes: Ints, order: Sequence[int]) -> tuple[int, ...]:
    """Dense strides; order: of the axes, the outermost first."""
    strides, step = [0] * len(sizes), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= sizes[axis]
    return tuple(strides)


def _has_strides_of(strides: Ints, dense: Ints, sizes: Ints) -> bool:
    return all(a == b for a, b, size in zip(strides, dense, sizes, strict=True) if size != 1)


def _is_dense(sizes: Ints, strides: Ints) -> bool:
    step = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, sizes, strict=True) if size != 1):
        if stride != step:
            return False
        step *= size
    return True


def _broadcast(sizes: Ints, shape: Ints, strides: Ints) -> tuple[int, ...]:
    missing = len(sizes) - len(shape)
    kept = zip(shape, strides, sizes[missing:], strict=True)
    return (*(0,) * missing, *(0 if own == 1 and size != 1 else stride for own, stride, size in kept))


def _order_of_axes(sizes: Ints, operands: Sequence[Ints]) -> list[int]:
    """The axes, the outermost first (`reorder_dimensions` of ATen/TensorIterator.cpp)."""

    def compare(first: int, second: int) -> int:
        for strides in operands:
            one, other = strides[first], strides[second]
            if not one or not other:  # a broadcast axis doesn't count
                continue
            if one != other:
                return -1 if one < other else 1
            if sizes[first] > sizes[second]:
                return 1
        return 0

    order = list(range(len(sizes) - 1, -1, -1))  # the innermost first
    for start in range(1, len(order)):
        moved = start
        for place in range(start - 1, -1, -1):
            said = compare(order[place], order[moved])
            if said > 0:
                order[place], order[moved] = order[moved], order[place]
                moved = place
            elif said < 0:
                break
    return order[::-1]


@functools.cache
def of_pointwise(op: Any) -> Rule | None:
    """The rule for an elementwise operator, None for others. They use TensorIterator; a number is an operand if the
    overload's name says so."""
    if not isinstance(op, torch._ops.OpOverload):
        return None
    schema = op._schema
    returned = [str(one.type) for one in schema.returns]
    if torch.Tag.pointwise not in op.tags or schema.is_mutable or returned != ["Tensor"]:
        return None
    named = "scalar" in op._overloadname.lower() or op._overloadname == "Tensor"
    return as_iterated if named else without_numbers
