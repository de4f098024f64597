"""Views as changes of coordinates, and back: the strides of a viewed tensor within its buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from armature.errors import invariant
from armature.lower import index as ix
from armature.lower.data import Buffer, View
from armature.lower.index import Index, Var
from armature.lower.values import TensorValue, axes
from armature.lower.values import coordinates as coordinates


def at(value: TensorValue, position: Sequence[Index]) -> tuple[Index, ...]:
    """The coordinates in the buffer of the element at `position` (one index per axis of the value)."""
    changes: dict[Var, Index] = dict(zip(axes(value.shape), position, strict=True))
    return tuple(ix.substitute(part, changes) for part in value.index)


def view(value: TensorValue, shape: Sequence[Index], position: Sequence[Index]) -> TensorValue:
    """The tensor of `shape` whose element is `value[position]`, `position` written in `coordinates(shape)`.

    Its strides are derived from the buffer's unless the caller knows better: lowering sets eager's.
    """
    return attrs.evolve(value, shape=tuple(shape), index=at(value, position), strides=ix.contiguous_strides(shape))


def broadcast_position(value: TensorValue, position: Sequence[Index]) -> tuple[Index, ...]:
    """The position in `value` of the element that broadcasting puts at `position` of a larger shape."""
    last = position[len(position) - value.ndim :]
    return tuple(0 if size == 1 else p for size, p in zip(value.shape, last, strict=True))


def broadcast_shape(*shapes: Sequence[Index]) -> tuple[Index, ...]:
    """The common shape. Errors: InvariantError when there is none (the fake tensors have accepted it before)."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Index] = [1] * rank
    for shape in shapes:
        for k, size in enumerate(shape, rank - len(shape)):
            invariant(out[k] == 1 or size == 1 or out[k] == size, "shapes do not broadcast", shapes=shapes)
            out[k] = size if out[k] == 1 else out[k]
    return tuple(out)


def strided_view(value: TensorValue, buffers: Mapping[str, Buffer]) -> View | None:
    """The value as strides and offset over its buffer's memory; None if that is not possible."""
    buffer = buffers[value.buffer]
    position = ix.linear(value.index, buffer.strides, buffer.offset)
    strides: list[Index] = []
    for var, size, wanted in zip(axes(value.shape), value.shape, value.strides, strict=True):
        step = wanted if size == 1 else ix.stride_of(position, var)
        if step is None or ix.variables(step):
            return None
        strides.append(step)
    start = ix.substitute(position, dict.fromkeys(axes(value.shape), 0))
    if ix.linear(coordinates(value.shape), strides, start) != position:
        return None
    return View(value.buffer, value.shape, tuple(strides), start)


def same_strides(shape: Sequence[Index], left: Sequence[Index], right: Sequence[Index]) -> bool:
    """Whether two stride tuples put each element at the same place; axes of size 1 are ignored."""
    return all(size == 1 or a == b for size, a, b in zip(shape, left, right, strict=True)) or 0 in shape


def overlapping(shape: Sequence[Index], strides: Sequence[Index]) -> bool:
    """True if an axis larger than 1 has stride 0: such a tensor can't be written in this layout."""
    return any(size != 1 and step == 0 for size, step in zip(shape, strides, strict=True))


def normal_axis(axis: int, rank: int) -> int:
    """A negative axis counts from the end; rank 0 behaves like rank 1."""
    return axis + max(rank, 1) if axis < 0 else axis


def permute(value: TensorValue, order: Sequence[int]) -> TensorValue:
    """Axis k of the result is axis order[k] of the value."""
    order = [normal_axis(k, value.ndim) for k in order]
    shape = tuple(value.shape[k] for k in order)
    new = coordinates(shape)
    position: list[Index] = [0] * value.ndim
    for k, old in enumerate(order):
        position[old] = new[k]
    return view(value, shape, position)


def expand(value: TensorValue, shape: Sequence[Index]) -> TensorValue:
    """Broadcast to `shape` (sizes already final, no -1)."""
    return view(value, shape, broadcast_position(value, coordinates(tuple(shape))))


def reshape(value: TensorValue, shape: Sequence[Index]) -> TensorValue:
    """The same elements in row-major order under another shape (sizes already final, no -1). Never copies."""
    shape = tuple(shape)
    if shape == value.shape:
        return value
    position: list[Index] = [0] * value.ndim
    new = coordinates(shape)
    for olds, news in _groups(value.shape, shape):
        flat = ix.linear([new[k] for k in news], ix.contiguous_strides([shape[k] for k in news]))
        parts = ix.delinear(flat, [value.shape[k] for k in olds])
        for k, part in zip(olds, parts, strict=True):
            position[k] = part
    return view(value, shape, position)


def _groups(old: Sequence[Index], new: Sequence[Index]) -> list[tuple[list[int], list[int]]]:
    """Runs of axes that cover the same number of elements, to keep each index expression as small as possible."""
    if 0 in old or 0 in new:
        return []
    out: list[tuple[list[int], list[int]]] = []
    a = b = 0
    while a < len(old) or b < len(new):
        olds: list[int] = []
        news: list[int] = []
        left: Index = 1
        right: Index = 1
        while True:
            if left == right and olds and news:
                break
            grow_left = b >= len(new) or (a < len(old) and ix.hint(left) <= ix.hint(right))
            if grow_left and a < len(old):
                left = ix.mul(left, old[a])
                olds.append(a)
                a += 1
            elif b < len(new):
                right = ix.mul(right, new[b])
                news.append(b)
                b += 1
            else:
                break
        out.append((olds, news))
    return out


def normal_place(where: Index, size: Index) -> Index:
    """A position along an axis, counted from its start. Tracing decided, and guarded, the sign of a symbolic
    position."""
    return where if ix.hint(where) >= 0 else ix.add(where, size)


def select(value: TensorValue, axis: int, where: Index) -> TensorValue:
    """`value[..., where, ...]`: removes the axis."""
    axis = normal_axis(axis, value.ndim)
    where = normal_place(where, value.shape[axis])
    shape = (*value.shape[:axis], *value.shape[axis + 1 :])
    new = coordinates(shape)
    return view(value, shape, (*new[:axis], where, *new[axis:]))


def slice_axis(value: TensorValue, axis: int, start: Index, length: Index, step: int = 1) -> TensorValue:
    """`value[..., start : start + length*step : step, ...]`; a negative step walks down from `start`."""
    axis = normal_axis(axis, value.ndim)
    shape = (*value.shape[:axis], length, *value.shape[axis + 1 :])
    position: list[Index] = list(coordinates(shape))
    position[axis] = ix.add(start, ix.mul(position[axis], step))
    return view(value, shape, position)


def unsqueeze(value: TensorValue, axis: int) -> TensorValue:
    """A new axis of size 1."""
    axis = axis + value.ndim + 1 if axis < 0 else axis
    shape = (*value.shape[:axis], 1, *value.shape[axis:])
    new = coordinates(shape)
    return view(value, shape, (*new[:axis], *new[axis + 1 :]))


def squeeze(value: TensorValue, wanted: Sequence[int]) -> TensorValue:
    """Drop those of the axes that have size 1."""
    gone = {normal_axis(k, value.ndim) for k in wanted}
    kept = [k for k in range(value.ndim) if k not in gone or value.shape[k] != 1]
    shape = tuple(value.shape[k] for k in kept)
    position: list[Index] = [0] * value.ndim
    for k, part in zip(kept, coordinates(shape), strict=True):
        position[k] = part
    return view(value, shape, position)
