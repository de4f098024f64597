"""Views are changes of coordinates and cost nothing; copies, joins and padding are loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from armature.backend_api import (
    Builder,
    Index,
    Node,
    NotSupported,
    Position,
    TensorValue,
    index,
    layout,
    lowers,
)

aten = torch.ops.aten
MOST_CHOICES = 4  # most parts of a join that are selected per element
LEAST_CHOICE = 16  # fewest elements of a part, so that neighbouring elements mostly select the same part


@lowers(aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default, aten.reshape.default)
def view(b: Builder, x: TensorValue, shape: Sequence[Index], strides: Sequence[Index] = ()) -> TensorValue:
    return layout.reshape(x, b.spec().shape)


@lowers(aten.alias.default, aten.detach.default, aten.lift_fresh_copy.default, aten.lift_fresh.default)
def alias(b: Builder, x: TensorValue) -> TensorValue:
    return x


@lowers(aten.permute.default)
def permute(b: Builder, x: TensorValue, order: Sequence[int]) -> TensorValue:
    return layout.permute(x, order)


@lowers(aten.transpose.int)
def transpose(b: Builder, x: TensorValue, first: int, second: int) -> TensorValue:
    order = list(range(x.ndim))
    if x.ndim:
        order[first], order[second] = order[second], order[first]
    return layout.permute(x, order)


@lowers(aten.t.default)
def t(b: Builder, x: TensorValue) -> TensorValue:
    return layout.permute(x, tuple(reversed(range(x.ndim))))


@lowers(aten.expand.default)
def expand(b: Builder, x: TensorValue, shape: Sequence[Index], *, implicit: bool = False) -> TensorValue:
    return layout.expand(x, b.spec().shape)


@lowers(aten.squeeze.default)
def squeeze(b: Builder, x: TensorValue) -> TensorValue:
    return layout.squeeze(x, range(x.ndim))


@lowers(aten.squeeze.dim)
def squeeze_dim(b: Builder, x: TensorValue, dim: int) -> TensorValue:
    return layout.squeeze(x, [dim] if x.ndim else [])


@lowers(aten.squeeze.dims)
def squeeze_dims(b: Builder, x: TensorValue, dims: Sequence[int]) -> TensorValue:
    return layout.squeeze(x, dims if x.ndim else [])


@lowers(aten.unsqueeze.default)
def unsqueeze(b: Builder, x: TensorValue, dim: int) -> TensorValue:
    return layout.unsqueeze(x, dim)


def _start(start: Index | None, size: Index) -> Index:
    """Where a slice begins, clipped as in Python. Errors: NotSupported if that depends on a symbolic size."""
    if start is None:
        return 0
    if not isinstance(start, int):
        raise NotSupported("a symbolic start", "changing")
    if isinstance(size, int):
        return min(max(start + size if start < 0 else start, 0), size)
    return layout.normal_place(start, size)


@lowers(aten.slice.Tensor)
def slice_tensor(
    b: Builder, x: TensorValue, dim: int = 0, start: Index | None = None, end: Index | None = None, step: int = 1
) -> TensorValue:
    dim = layout.normal_axis(dim, x.ndim)
    return layout.slice_axis(x, dim, _start(start, x.shape[dim]), b.spec().shape[dim], step)


@lowers(aten.select.int)
def select(b: Builder, x: TensorValue, dim: int, where: Index) -> TensorValue:
    return layout.select(x, dim, where)


@lowers(
    aten.split.Tensor,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    aten.split_with_sizes.default,
    aten.split.sizes,
    aten.chunk.default,
    aten.tensor_split.sections,
)
def split(b: Builder, x: TensorValue, sizes: object, dim: int = 0) -> tuple[TensorValue, ...]:
    dim = layout.normal_axis(dim, x.ndim)
    out: list[TensorValue] = []
    start: Index = 0
    for k in range(b.result_count):
        length = b.spec(k).shape[dim]
        out.append(layout.slice_axis(x, dim, start, length))
        start = index.add(start, length)
    return tuple(out)


@lowers(aten.unbind.int)
def unbind(b: Builder, x: TensorValue, dim: int = 0) -> tuple[TensorValue, ...]:
    return tuple(layout.select(x, dim, k) for k in range(b.result_count))


@lowers(aten.diagonal.default)
def diagonal(b: Builder, x: TensorValue, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorValue:
    first, second = layout.normal_axis(dim1, x.ndim), layout.normal_axis(dim2, x.ndim)
    shape = b.spec().shape
    along = layout.coordinates(shape)
    rest = iter(along[:-1])
    position: list[Index] = []
    for axis in range(x.ndim):
        if axis == first:
            position.append(index.add(along[-1], max(-offset, 0)))
        elif axis == second:
            position.append(index.add(along[-1], max(offset, 0)))
        else:
            position.append(next(rest))
    return layout.view(x, shape, position)


@lowers(aten.unfold.default)
def unfold(b: Builder, x: TensorValue, dim: int, size: int, step: int) -> TensorValue:
    if not x.ndim:
        raise NotSupported("unfold of a tensor without axes")
    dim = layout.normal_axis(dim, x.ndim)
    shape = b.spec().shape
    along = list(layout.coordinates(shape))
    along[dim] = index.add(index.mul(along[dim], step), along.pop())
    return layout.view(x, shape, along)


@lowers(aten.view.dtype)
def view_dtype(b: Builder, x: TensorValue, dtype: torch.dtype) -> TensorValue:
    # The same memory under another dtype: a copy of the bits, which is equivalent in a functional graph.
    if dtype.itemsize != x.dtype.itemsize or torch.bool in (dtype, x.dtype):
        raise NotSupported("a view with elements of another width")
    return b.loop(lambda p: b.op("bitcast", b.load(x, p), dtype=dtype))


# Copies.


@lowers(aten.clone.default, aten.contiguous.default)
def clone(b: Builder, x: TensorValue, *, memory_format: torch.memory_format | None = None) -> TensorValue:
    return b.loop(lambda p: b.load(x, p))


@lowers(aten._to_copy.default)
def to_copy(b: Builder, x: TensorValue | Index | float, **options: object) -> TensorValue | None:
    if not isinstance(x, TensorValue):  # under vmap, a number of the program is converted to a tensor's dtype
        number = x
        return b.loop(lambda p: b.number(number, b.spec().dtype))
    if b.spec().device != x.device or options.get("layout") not in (None, torch.strided):
        return None
    return b.loop(lambda p: b.load(x, p))


@lowers(torch.ops.prims.convert_element_type.default)
def convert(b: Builder, x: TensorValue, dtype: torch.dtype) -> TensorValue:
    return b.loop(lambda p: b.load(x, p))


@lowers(aten.copy.default)
def copy(
    b: Builder, x: TensorValue, source: TensorValue | Index | float, non_blocking: bool = False
) -> TensorValue | None:
    if not isinstance(source, TensorValue):  # `x.copy_(0.5)`
        number = source
        return b.loop(lambda p: b.number(number, x.dtype))
    return b.loop(lambda p: b.read(source, p, source.dtype)) if source.device == x.device else None


@lowers(aten.copy_.default)
def copy_(b: Builder, x: TensorValue, source: TensorValue, non_blocking: bool = False) -> TensorValue | None:
    if source.device != x.device or not b.is_whole(x) or 0 in x.shape:
        return None
    if source.buffer == x.buffer and not b.is_whole(source):
        return None
    b.store(x.buffer, x.shape, lambda p: (x.index, b.read(source, p, source.dtype), ()))
    return x


@lowers(aten.expand_copy.default)
def expand_copy(b: Builder, x: TensorValue, shape: Sequence[Index], *, implicit: bool = False) -> TensorValue:
    return b.loop(lambda p: b.load(x, layout.broadcast_position(x, p)))


@lowers(aten.flip.default)
def flip(b: Builder, x: TensorValue, dims: Sequence[int]) -> TensorValue:
    gone = {layout.normal_axis(d, x.ndim) for d in dims}

    def turned(p: Position) -> Position:
        return tuple(index.sub(index.add(x.shape[k], -1), part) if k in gone else part for k, part in enumerate(p))

    return b.loop(lambda p: b.load(x, turned(p)))


@lowers(aten.roll.default)
def roll(b: Builder, x: TensorValue, shifts: Sequence[int], dims: Sequence[int] = ()) -> TensorValue | None:
    sizes = [size for size in x.shape if isinstance(size, int)]
    if not dims or len(sizes) < x.ndim:
        return None
    by = dict.fromkeys(range(x.ndim), 0)
    for shift, dim in zip(shifts, dims, strict=True):
        by[layout.normal_axis(dim, x.ndim)] += shift

    def moved(p: Position) -> Position:
        return tuple(
            index.mod(index.add(part, -by[k] % size), size) if by[k] else part
            for k, (part, size) in enumerate(zip(p, sizes, strict=True))
        )

    return b.loop(lambda p: b.load(x, moved(p)))


@lowers(aten.repeat.default)
def repeat(b: Builder, x: TensorValue, times: Sequence[Index]) -> TensorValue:
    def wrapped(p: Position) -> Position:
        last = p[len(p) - x.ndim :]
        return tuple(index.mod(part, size) for part, size in zip(last, x.shape, strict=True))

    return b.loop(lambda p: b.load(x, wrapped(p)))


# Joins.


@lowers(aten.cat.default)
def cat(b: Builder, tensors: Sequence[TensorValue], dim: int = 0) -> TensorValue:
    spec = b.spec()
    parts = [t for t in tensors if 0 not in t.shape]
    if not parts:
        raise NotSupported("empty parts alone")
    return _joined(b, parts, layout.normal_axis(dim, len(spec.shape)))


@lowers(aten.stack.default)
def stack(b: Builder, tensors: Sequence[TensorValue], dim: int = 0) -> TensorValue:
    dim = layout.normal_axis(dim, len(b.spec().shape))
    return _joined(b, [layout.unsqueeze(t, dim) for t in tensors], dim)


def _joined(b: Builder, parts: Sequence[TensorValue], dim: int) -> TensorValue:
    """A choice per element where that saves memory traffic; else a loop per part."""
    last = all(size == 1 for size in b.spec().shape[dim + 1 :])
    long = all(isinstance(size := part.shape[dim], int) and size >= LEAST_CHOICE for part in parts)
    if last and long and 1 < len(parts) <= MOST_CHOICES and b.feeds_pointwise():
        return _chosen(b, parts, dim)
    return _one_after_another(b, parts, dim)


def _chosen(b: Builder, parts: Sequence[TensorValue], dim: int) -> TensorValue:
    """One loop whose elements select their part, so that a reader can compute it inline."""

    def element(p: Position) -> Node:
        place, start = b.index_value(p[dim]), index.add(*(part.shape[dim] for part in parts[:-1]))
        inside: Node = b.op("ge", place, b.index_value(start))
        shifted = (*p[:dim], index.sub(p[dim], start), *p[dim + 1 :])
        value: Node = b.masked(inside, b.read(parts[-1], shifted, b.spec().dtype), 0)
        for part in reversed(parts[:-1]):
            below = b.op("lt", place, b.index_value(start))
            start = index.sub(start, part.shape[dim])
            inside = below if start == 0 else b.op("logical_and", b.op("ge", place, b.index_value(start)), below)
            shifted = (*p[:dim], index.sub(p[dim], start), *p[dim + 1 :])
            value = b.where(below, b.masked(inside, b.read(part, shifted, b.spec().dtype), 0), value)
        return value

    return b.loop(element)


def _one_after_another(b: Builder, parts: Sequence[TensorValue], dim: int) -> TensorValue:
    """One loop per part, each writing its own piece of the result."""
    spec = b.spec()
    b.device = str(spec.device)
    name = b.new_buffer(spec)
    start: Index = 0
    for part in parts:
        offset = start

        def element(p: Position, part: TensorValue = part, offset: Index = offset) -> tuple[Position, Node, tuple[()]]:
            where = (*p[:dim], index.add(p[dim], offset), *p[dim + 1 :])
            return where, b.load(part, p), ()

        b.store(name, part.shape, element)
        start = index.add(start, part.shape[dim])
    return b.whole(name)


@lowers(aten.constant_pad_nd.default)
def constant_pad_nd(b: Builder, x: TensorValue, pad: Sequence[Index], value: float = 0) -> TensorValue:
    before: list[Index] = [0] * x.ndim
    for k in range(len(pad) // 2):
        before[x.ndim - 1 - k] = pad[2 * k]

    def element(p: Position) -> Node:
        where = tuple(index.sub(part, first) for part, first in zip(p, before, strict=True))
        inside = b.within(*zip(where, x.shape, strict=True))
        return b.masked(inside, b.load(x, where), value)

    return b.loop(element)


def _written(
    b: Builder, x: TensorValue, source: TensorValue, shape: Sequence[Index], place: Callable[[Position], Position]
) -> TensorValue:
    """A copy of `x` with part of it replaced by the source. If the result is copied back, neither copy is made."""
    out = b.loop(lambda p: b.load(x, p))
    b.store(out.buffer, tuple(shape), lambda p: (place(p), b.read(source, p, x.dtype), ()))
    return out


@lowers(aten.slice_scatter.default)
def slice_scatter(
    b: Builder,
    x: TensorValue,
    source: TensorValue,
    dim: int = 0,
    start: Index | None = None,
    end: Index | None = None,
    step: int = 1,
) -> TensorValue:
    """A choice per element, so that it can be fused; if the result is copied back, a loop over the source alone."""
    dim = layout.normal_axis(dim, x.ndim)
    first = _start(start, x.shape[dim])
    if b.written_back:

        def place(p: Position) -> Position:
            return (*p[:dim], index.add(index.mul(p[dim], step), first), *p[dim + 1 :])

        return _written(b, x, source, source.shape, place)

    def element(p: Position) -> Node:
        gap = index.sub(p[dim], first)
        where = (*p[:dim], index.floordiv(gap, step), *p[dim + 1 :])
        inside = b.within((where[dim], source.shape[dim]))
        if step != 1:
            hit = b.op("eq", b.index_value(index.mod(gap, step)), b.const(0, torch.int64))
            inside = b.op("logical_and", inside, hit)
        return b.where(inside, b.masked(inside, b.load(source, where), 0), b.load(x, p))

    return b.loop(element)


@lowers(aten.select_scatter.default)
def select_scatter(b: Builder, x: TensorValue, source: TensorValue, dim: int, where: Index) -> TensorValue:
    dim = layout.normal_axis(dim, x.ndim)
    at = layout.normal_place(where, x.shape[dim])
    if b.written_back:
        return _written(b, x, source, source.shape, lambda p: (*p[:dim], at, *p[dim:]))

    def element(p: Position) -> Node:
        hit = b.op("eq", b.index_value(p[dim]), b.index_value(at))
        return b.where(hit, b.load(source, (*p[:dim], *p[dim + 1 :])), b.load(x, p))

    return b.loop(element)


@lowers(aten.diagonal_scatter.default)
def diagonal_scatter(
    b: Builder, x: TensorValue, source: TensorValue, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> TensorValue:
    first, second = layout.normal_axis(dim1, x.ndim), layout.normal_axis(dim2, x.ndim)

    def element(p: Position) -> Node:
        rest = tuple(part for k, part in enumerate(p) if k not in (first, second))
        along = index.sub(p[first], max(-offset, 0))
        hit = b.op("eq", b.index_value(index.sub(p[second], p[first])), b.const(offset, torch.int64))
        inside = b.op("logical_and", hit, b.within((along, source.shape[-1])))
        return b.where(inside, b.masked(inside, b.load(source, (*rest, along)), 0), b.load(x, p))

    return b.loop(element)
