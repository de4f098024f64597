"""Tensors made from numbers: constants and ranges."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from armature.backend_api import (
    Builder,
    Index,
    Node,
    NotSupported,
    Position,
    Scalar,
    TensorValue,
    index,
    layout,
    lowers,
)

aten = torch.ops.aten
Number = bool | int | float
# They read the size of their first argument alone, or a part of it that is written first; backward of averages and of
# repeated borders, which are mostly loops, the size of the image.
OVERWRITING = frozenset((
    aten.copy.default, aten.fill.Scalar, aten.fill.Tensor, aten.zero.default, aten.slice_scatter.default,
    aten.select_scatter.default, aten.zeros_like.default, aten.full_like.default,
    aten.avg_pool2d_backward.default, aten.avg_pool3d_backward.default, aten._adaptive_avg_pool2d_backward.default,
    aten._adaptive_avg_pool3d_backward.default, aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default, aten.replication_pad3d_backward.default,
))  # fmt: skip


def _filled(b: Builder, value: Scalar) -> TensorValue:
    dtype = b.spec().dtype
    return b.loop(lambda p: b.number(value, dtype))


@lowers(
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.empty_permuted.default,
    aten.empty_strided.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
)
def uninitialised(b: Builder, *like: object, **options: object) -> TensorValue:
    """Memory whose readers are loops needs no call: zeros stand for what they read of it. torch fills it where it is
    told to compute the same each time."""
    if torch.are_deterministic_algorithms_enabled() or not b.feeds_pointwise(OVERWRITING):
        raise NotSupported("memory that others than loops read")
    return _filled(b, 0)


@lowers(aten.full.default)
def full(b: Builder, shape: Sequence[Index], value: Scalar, **options: object) -> TensorValue:
    return _filled(b, value)


@lowers(aten.full_like.default)
def full_like(b: Builder, x: TensorValue, value: Scalar, **options: object) -> TensorValue:
    return _filled(b, value)


@lowers(aten.new_full.default)
def new_full(b: Builder, x: TensorValue, shape: Sequence[Index], value: Scalar, **options: object) -> TensorValue:
    return _filled(b, value)


@lowers(aten.fill.Scalar)
def fill(b: Builder, x: TensorValue, value: Scalar) -> TensorValue:
    return _filled(b, value)


@lowers(aten.fill.Tensor)
def fill_with_element(b: Builder, x: TensorValue, value: TensorValue) -> TensorValue | None:
    return b.loop(lambda p: b.load(value, ())) if value.device == x.device else None


@lowers(aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)
def zeros(b: Builder, *like: object, **options: object) -> TensorValue:
    return _filled(b, 0)


@lowers(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def ones(b: Builder, *like: object, **options: object) -> TensorValue:
    return _filled(b, 1)


@lowers(aten.scalar_tensor.default)
def scalar_tensor(b: Builder, value: Scalar, **options: object) -> TensorValue:
    return _filled(b, value)


@lowers(aten.arange.default)
def arange(b: Builder, end: Index | float, **options: object) -> TensorValue | None:
    return arange_step(b, 0, end, 1)


@lowers(aten.arange.start)
def arange_start(b: Builder, start: Index | float, end: Index | float, **options: object) -> TensorValue | None:
    return arange_step(b, start, end, 1)


@lowers(aten.arange.start_step)
def arange_step(
    b: Builder, start: Index | float, end: Index | float, step: Index | float = 1, **options: object
) -> TensorValue | None:
    dtype = b.spec().dtype
    if dtype.is_floating_point and (isinstance(start, float) or isinstance(step, float)):
        return b.loop(lambda p: _spaced(b, p, start, step, dtype))
    # numbers without their fractions, as eager mode's kernel takes them for a result of integers
    start, step = (int(end) if isinstance(end, float) else end for end in (start, step))
    return b.loop(lambda p: b.index_value(index.add(start, index.mul(p[0], step)), dtype))


def _spaced(b: Builder, p: Position, start: Index | float, step: Index | float, dtype: torch.dtype) -> Node:
    # Computed in double precision, as eager does for the CPU and, in effect, for CUDA.
    wide = torch.float64
    count = b.cast(b.index_value(p[0]), wide)
    return b.cast(b.op("add", b.number(start, wide), b.op("mul", count, b.number(step, wide))), dtype)


@lowers(torch.ops.prims.iota.default)
def iota(b: Builder, length: Index, *, start: Index, step: Index, **options: object) -> TensorValue:
    return b.loop(lambda p: b.index_value(index.add(start, index.mul(p[0], step)), b.spec().dtype))


@lowers(aten.eye.default, aten.eye.m)
def eye(b: Builder, *sizes: Index, **options: object) -> TensorValue:
    dtype = b.spec().dtype
    return b.loop(lambda p: b.where(b.op("eq", *(b.index_value(k) for k in p)), b.const(1, dtype), b.const(0, dtype)))


@lowers(aten.tril.default)
def tril(b: Builder, x: TensorValue, diagonal: int = 0) -> TensorValue:
    return _triangle(b, x, diagonal, "le")


@lowers(aten.triu.default)
def triu(b: Builder, x: TensorValue, diagonal: int = 0) -> TensorValue:
    return _triangle(b, x, diagonal, "ge")


def _triangle(b: Builder, x: TensorValue, diagonal: int, comparison: str) -> TensorValue:
    def element(p: Position) -> Node:
        row, column = layout.coordinates(x.shape)[-2:]
        kept = b.op(comparison, b.index_value(index.sub(column, row)), b.const(diagonal, torch.int64))
        return b.where(kept, b.load(x, p), b.const(0, x.dtype))

    return b.loop(element)
