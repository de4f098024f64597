"""Views by strides: positions in memory as coordinates of the tensor that lies there."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from armature.backend_api import (
    Builder,
    Index,
    Node,
    NotSupported,
    Position,
    TensorValue,
    contiguous_strides,
    hint,
    index,
    layout,
    lowers,
    numel,
)

aten = torch.ops.aten


def _flat(x: TensorValue) -> TensorValue:
    """The elements of a tensor in the order of its memory. Errors: NotSupported if there are gaps or overlaps."""
    order = [axis for axis in range(x.ndim) if x.shape[axis] != 1]
    order.sort(key=lambda axis: -hint(x.strides[axis]))
    shape = tuple(x.shape[axis] for axis in order)
    if tuple(x.strides[axis] for axis in order) != contiguous_strides(shape):
        raise NotSupported("a view by strides of a tensor that is not dense")
    ones = [axis for axis in range(x.ndim) if x.shape[axis] == 1]
    return layout.reshape(layout.permute(x, [*ones, *order]), (numel(x.shape),))


def _place(x: TensorValue, position: Position, size: Sequence[Index], stride: Sequence[Index], start: Index) -> Index:
    """Where the element at a position of the view is among the elements of `x` in memory. Errors: NotSupported if not
    all of the view is known to lie within `x`."""
    ends = [index.mul(index.sub(count, 1), step) for count, step in zip(size, stride, strict=True)]
    least, _ = index.bounds(index.sub(numel(x.shape), index.add(start, *ends, 1)))
    lowest, _ = index.bounds(start)
    if least is None or lowest is None or min(least, lowest) < 0:
        raise NotSupported("a view by strides of memory around its tensor")
    return index.linear(position, stride, start)


def _overlaps(size: Sequence[Index], stride: Sequence[Index]) -> bool:
    """Whether two positions may be the same place, unless each step is known to be beyond all smaller ones."""
    reach: Index = 0
    for count, step in sorted(zip(size, stride, strict=True), key=lambda pair: hint(pair[1])):
        if count == 1:
            continue
        beyond, _ = index.bounds(index.sub(step, index.add(reach, 1)))
        if beyond is None or beyond < 0:
            return True
        reach = index.add(reach, index.mul(index.sub(count, 1), step))
    return False


@lowers(aten.as_strided.default, aten.as_strided_copy.default)
def as_strided(
    b: Builder, x: TensorValue, size: Sequence[Index], stride: Sequence[Index], storage_offset: Index | None = None
) -> TensorValue:
    flat, shape = _flat(x), b.spec().shape
    start = 0 if storage_offset is None else index.sub(storage_offset, b.start_of(0))
    seen = layout.view(flat, shape, (_place(flat, layout.coordinates(shape), shape, stride, start),))
    return seen if b.target is aten.as_strided.default else b.loop(lambda p: b.load(seen, p))


@lowers(aten.as_strided_scatter.default)
def as_strided_scatter(
    b: Builder,
    x: TensorValue,
    source: TensorValue,
    size: Sequence[Index],
    stride: Sequence[Index],
    storage_offset: Index | None = None,
) -> TensorValue:
    if _overlaps(size, stride):  # which eager mode refuses to write to
        raise NotSupported("a view by strides that may overlap itself")
    if b.start_of(0) != 0:  # as that of the result, whose memory starts with it here
        raise NotSupported("a part of memory")
    out = b.loop(lambda p: b.load(x, p))
    flat = _flat(out)

    def element(p: Position) -> tuple[Position, Node, tuple[()]]:
        return layout.at(flat, (_place(flat, p, size, stride, storage_offset or 0),)), b.load(source, p), ()

    b.store(out.buffer, source.shape, element)
    return out
