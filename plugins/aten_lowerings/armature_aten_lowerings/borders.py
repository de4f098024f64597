"""Borders that repeat or reflect an image: loads at computed positions, without tensors of indices."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import attrs
import torch

from armature.backend_api import (
    Builder,
    Const,
    Index,
    Node,
    Position,
    TensorValue,
    Var,
    compute_dtype,
    index,
    layout,
    lowers,
)
from armature_aten_lowerings.windows import MOST_COMPARED

aten = torch.ops.aten
Coordinates = tuple[Index, Index, Index]
Copy = tuple[Index, tuple[tuple[Index, Index], ...]]
"""A coordinate of the result, and what must hold, `0 <= index < size`, for it to be a copy of an element."""


def _reflected(at: Index, size: int, before: int) -> Coordinates:
    """The source of a result's coordinate before the image, in it, and behind it; the border is not repeated."""
    return index.sub(before, at), index.sub(at, before), index.sub(2 * size - 2 + before, at)


def _repeated(at: Index, size: int, before: int) -> Coordinates:
    """The same, if the outermost elements are repeated."""
    return 0, index.sub(at, before), size - 1


@lowers(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
def reflection_pad(b: Builder, x: TensorValue, padding: Sequence[Index]) -> TensorValue | None:
    return _bordered(b, x, padding, _reflected)


@lowers(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)
def replication_pad(b: Builder, x: TensorValue, padding: Sequence[Index]) -> TensorValue | None:
    cropped = _cropped(x, padding)
    if cropped is None:
        return None
    return _bordered(b, cropped, [max(n, 0) if isinstance(n, int) else n for n in padding], _repeated)


def _cropped(x: TensorValue, padding: Sequence[Index]) -> TensorValue | None:
    """The image without what borders of negative width remove. None: nothing is left of it, or it is not known."""
    strides = x.strides
    for number in range(len(padding) // 2):
        axis, (before, behind) = x.ndim - 1 - number, padding[2 * number : 2 * number + 2]
        size = x.shape[axis]
        if not isinstance(before, int) or not isinstance(behind, int) or min(before, behind) >= 0:
            continue
        first = max(-before, 0)
        if not isinstance(size, int) or first + max(-behind, 0) >= size:
            return None
        x = layout.slice_axis(x, axis, first, size - first - max(-behind, 0))
    return attrs.evolve(x, strides=strides)


def _bordered(
    b: Builder, x: TensorValue, padding: Sequence[Index], sources: Callable[[Index, int, int], Coordinates]
) -> TensorValue | None:
    """Read the bordered image: along rows of memory in three pieces, into which the loop is split, along other axes at
    computed positions."""
    sizes = x.shape[x.ndim - len(padding) // 2 :]
    numbers = [n for n in (*padding, *sizes) if isinstance(n, int) and n >= 0]
    if len(numbers) < len(padding) + len(sizes):
        return None
    first = x.ndim - len(sizes)
    known = numbers[len(padding) :]
    before = [numbers[2 * (len(sizes) - 1 - k)] for k in range(len(sizes))]

    def element(p: Position) -> Node:
        where: list[Index] = list(p)
        bound: list[tuple[Var, Node]] = []
        rows: tuple[int, Coordinates] | None = None
        for axis, size, border in zip(range(first, x.ndim), known, before, strict=True):
            coordinates = sources(p[axis], size, border)
            if x.strides[axis] == 1 and size > 1:
                rows = axis, coordinates
            else:
                place = _chosen(b, p[axis], size, border, [b.index_value(one) for one in coordinates])
                bound.append(b.indirect(axis, size, place))
                where[axis] = bound[-1][0]
        if rows is None:
            return b.load(x, where, bound)
        axis, coordinates = rows
        border, size = before[axis - first], known[axis - first]
        tests = _pieces(b, p[axis], size, border)
        loads = [b.load(x, (*where[:axis], one, *where[axis + 1 :]), bound) for one in coordinates]
        pieces = [b.masked(test, load, 0) for test, load in zip(tests, loads, strict=True)]
        return _chosen(b, p[axis], size, border, pieces)

    return b.loop(element)


def _edges(b: Builder, at: Index, size: int, before: int) -> tuple[Node, Node]:
    """Whether a coordinate is before the image, and whether it is not behind it."""
    number = b.index_value(at)
    return b.op("lt", number, b.const(before, torch.int64)), b.op("lt", number, b.const(before + size, torch.int64))


def _pieces(b: Builder, at: Index, size: int, before: int) -> tuple[Node, Node, Node]:
    """Whether a coordinate is before the image, in it, behind it."""
    early, not_late = _edges(b, at, size, before)
    return early, b.op("logical_and", b.op("logical_not", early), not_late), b.op("logical_not", not_late)


def _chosen(b: Builder, at: Index, size: int, before: int, three: Sequence[Node]) -> Node:
    """The value for the coordinate: one of three, for places before, in and behind the image."""
    early, not_late = _edges(b, at, size, before)
    return b.where(early, three[0], b.where(not_late, three[1], three[2]))


def _reflections(at: Index, size: int, before: int, behind: int) -> list[Copy]:
    """The copies of the element at a coordinate of an image, along one axis."""
    early, late = index.sub(before, at), index.sub(2 * size - 2 + before, at)
    copies: list[Copy] = [(index.add(at, before), ())]
    if before:
        copies.append((early, ((early, before),)))
    if behind:
        copies.append((late, ((index.sub(late, before + size), behind),)))
    return copies


def _repetitions(at: Index, size: int, before: int, behind: int) -> list[Copy]:
    """The same, if the outermost elements are repeated."""
    copies: list[Copy] = [(index.add(at, before), ())]
    copies += [(place, ((at, 1),)) for place in range(before)]
    copies += [(before + size + place, ((index.sub(at, size - 1), 1),)) for place in range(behind)]
    return copies


@lowers(
    aten.reflection_pad1d_backward.default,
    aten.reflection_pad2d_backward.default,
    aten.reflection_pad3d_backward.default,
)
def reflection_pad_backward(
    b: Builder, grad: TensorValue, x: TensorValue, padding: Sequence[Index]
) -> TensorValue | None:
    if grad.device.type == "cpu" and grad.strides[-1] == 1:  # vectors would run along rows, and read some backwards
        return None
    return _collected(b, grad, x, padding, _reflections)


@lowers(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
)
def replication_pad_backward(
    b: Builder, grad: TensorValue, x: TensorValue, padding: Sequence[Index]
) -> TensorValue | None:
    return _collected(b, grad, x, padding, _repetitions)


def _collected(
    b: Builder,
    grad: TensorValue,
    x: TensorValue,
    padding: Sequence[Index],
    copies_of: Callable[[Index, int, int, int], list[Copy]],
) -> TensorValue | None:
    """The gradients of an element's copies, added up; None if there are so many copies that the library is faster."""
    sizes = x.shape[x.ndim - len(padding) // 2 :]
    numbers = [n for n in (*padding, *sizes) if isinstance(n, int) and n >= 0]
    if len(numbers) < len(padding) + len(sizes):
        return None
    first, known = x.ndim - len(sizes), numbers[len(padding) :]
    borders = [tuple(numbers[2 * k : 2 * k + 2]) for k in reversed(range(len(sizes)))]
    if math.prod(len(copies_of(0, n, *border)) for n, border in zip(known, borders, strict=True)) > MOST_COMPARED:
        return None
    dtype = compute_dtype(grad.dtype)

    def copy(p: Position, chosen: Sequence[Copy]) -> Node:
        value = b.read(grad, (*p[:first], *(place for place, _ in chosen)), dtype)
        inside = b.within(*(check for _, checks in chosen for check in checks))
        return value if isinstance(inside, Const) else b.masked(inside, value, 0)

    def element(p: Position) -> Node:
        axes = [copies_of(c, n, *border) for c, n, border in zip(p[first:], known, borders, strict=True)]
        return functools.reduce(
            lambda one, other: b.op("add", one, other), (copy(p, chosen) for chosen in itertools.product(*axes))
        )

    return b.loop(element)
