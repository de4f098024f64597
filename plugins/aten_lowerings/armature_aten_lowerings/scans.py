"""Cumulative sums, products and extremes."""

from __future__ import annotations

import math

import torch

from armature.backend_api import (
    REDUCTIONS,
    Builder,
    Const,
    Index,
    Node,
    NotSupported,
    Position,
    Spec,
    TensorValue,
    add,
    compute_dtype,
    contiguous_strides,
    floordiv,
    hint,
    index,
    layout,
    lowers,
    mul,
    sub,
)

aten = torch.ops.aten
LONG = 4096  # points of a row above which it is cut, if there are too few rows to occupy the device
# least number of independent points of a device for which cutting rows pays, although the row is then read twice
MANY = 16
PIECE = 2048  # points of a piece along memory
COLUMN_PIECE = 256  # the same across memory, where one program handles neighbouring columns
NEUTRAL = {"sum": 0, "prod": 1, "logsumexp": -math.inf}


def _scan(b: Builder, op: str, x: TensorValue, dim: int) -> TensorValue:
    axis = layout.normal_axis(dim, x.ndim) if x.ndim else 0
    rows = index.numel(size for k, size in enumerate(x.shape) if k != axis)
    spec = b.spec()
    if x.ndim and hint(x.shape[axis]) > LONG and hint(rows) < b.features.parallel:
        # For a single row torch's own kernel needs one launch and reads the row once; of several rows, each is run by a
        # single program.
        alone = hint(rows) == 1 and x.dtype.itemsize >= spec.dtype.itemsize
        if alone or b.features.parallel < MANY:
            raise NotSupported("a scan along few long rows", "cost")
        return _in_pieces(b, op, x, axis, spec)

    def element(position: Position) -> Node:
        return b.scan(op, x, axis, position, compute_dtype(spec.dtype))

    return b.loop(element, spec)


def _length(size: Index, most: int) -> int:
    """The length of pieces; without a shorter last piece if possible, because the loops around the scan can then be
    fused with it."""
    if not isinstance(size, int):
        return most
    return next((length for length in range(most, most // 2, -1) if size % length == 0), most)


def _in_pieces(b: Builder, op: str, x: TensorValue, axis: int, spec: Spec) -> TensorValue:
    """A scan of few long rows: each is cut, the pieces are reduced, their results scanned, and then the pieces.

    The result has room for a whole last piece.
    """
    size, dtype = x.shape[axis], compute_dtype(spec.dtype)
    length = _length(size, PIECE if x.strides[axis] == 1 else COLUMN_PIECE)
    pieces = floordiv(add(size, length - 1), length)
    combine = REDUCTIONS[op].combine or op
    cut_shape = (*x.shape[:axis], pieces, length, *x.shape[axis + 1 :])

    def part(position: Position) -> Node:
        """The element at a position in `cut_shape`, neutral behind the end of the row."""
        place = add(mul(position[axis], length), position[axis + 1])
        value = b.cast(b.load(x, (*position[:axis], place, *position[axis + 2 :])), dtype)
        inside = b.within((place, size))
        return value if isinstance(inside, Const) else b.masked(inside, value, NEUTRAL[op])

    def total(position: Position) -> Node:
        before, after = position[: axis + 1], position[axis + 1 :]
        return b.reduce_over(op, (length,), lambda steps: part((*before, *steps, *after)))

    totals = b.loop(total, Spec.dense((*x.shape[:axis], pieces, *x.shape[axis + 1 :]), dtype, x.device))
    ends = b.loop(lambda position: b.scan(op, totals, axis, position, dtype), Spec.dense(totals.shape, dtype, x.device))

    def element(position: Position) -> Node:
        piece = position[axis]
        earlier = (*position[:axis], sub(piece, 1), *position[axis + 2 :])
        first = b.masked(b.within((sub(piece, 1), pieces)), b.load(ends, earlier), NEUTRAL[op])
        return b.op(combine, first, b.scan_of(op, part(position), position[axis + 1]))

    step = spec.strides[axis]
    fits = index.mod(size, length) == 0 or all(hint(other) <= hint(step) for other in spec.strides)
    strides = (*spec.strides[:axis], mul(step, length), step, *spec.strides[axis + 1 :])
    cut = Spec(cut_shape, spec.dtype, spec.device, strides if fits else contiguous_strides(cut_shape))
    made, place = b.loop(element, cut), layout.coordinates(x.shape)
    where = place[axis]
    return layout.view(
        made, x.shape, (*place[:axis], floordiv(where, length), index.mod(where, length), *place[axis + 1 :])
    )


@lowers(aten.cumsum.default)
def cumsum(b: Builder, x: TensorValue, dim: int, *, dtype: torch.dtype | None = None) -> TensorValue:
    return _scan(b, "sum", x, dim)


@lowers(aten.cumprod.default)
def cumprod(b: Builder, x: TensorValue, dim: int, *, dtype: torch.dtype | None = None) -> TensorValue:
    return _scan(b, "prod", x, dim)


@lowers(aten.logcumsumexp.default)
def logcumsumexp(b: Builder, x: TensorValue, dim: int) -> TensorValue | None:
    return _scan(b, "logsumexp", x, dim) if x.dtype.is_floating_point else None


def _extremes(b: Builder, op: str, x: TensorValue, dim: int) -> tuple[TensorValue, TensorValue]:
    """The largest or smallest value so far, and the last position that has it; a NaN counts as both."""
    dtype = compute_dtype(x.dtype)
    if dtype == torch.bool:
        raise NotSupported("extremes of bools")
    axis = layout.normal_axis(dim, x.ndim) if x.ndim else 0
    values = b.loop(lambda position: b.scan(op, x, axis, position, dtype))
    size = x.shape[axis] if x.ndim else 1
    counter = torch.int32 if isinstance(size, int) and size < 1 << 31 else torch.int64

    def place(position: Position) -> Node:
        along = position[axis] if position else 0
        value = b.read(x, position, dtype)
        reached = b.op("eq", value, b.read(values, position, dtype))
        if dtype.is_floating_point:
            reached = b.op("logical_or", reached, b.op("isnan", value))
        number = b.where(reached, b.cast(b.index_value(along), counter), b.const(0, counter))
        return b.scan_of("max", number, along)

    return values, b.loop(place, b.spec(1))


@lowers(aten.cummax.default)
def cummax(b: Builder, x: TensorValue, dim: int) -> tuple[TensorValue, TensorValue]:
    return _extremes(b, "max", x, dim)


@lowers(aten.cummin.default)
def cummin(b: Builder, x: TensorValue, dim: int) -> tuple[TensorValue, TensorValue]:
    return _extremes(b, "min", x, dim)
