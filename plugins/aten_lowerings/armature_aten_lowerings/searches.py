"""Finds the positions of values among sorted boundaries (searchsorted, bucketize) without a branch in each step."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from armature.backend_api import Builder, Index, Node, NotSupported, Position, TensorValue, Var, compute_dtype, lowers
from armature_aten_lowerings.promotion import promoted

aten = torch.ops.aten
MOST_COMPARED = 64  # up to this many boundaries, a value is compared with all of them; beyond, by binary search


def _place(
    b: Builder, boundaries: TensorValue, row: Position, value: Node, right: bool, sorter: TensorValue | None = None
) -> Node:
    """The number of boundaries in a row before the value; those equal to it count only if `right`. sorter: their places
    in the row, in order."""
    count = boundaries.shape[-1]
    if not isinstance(count, int) or not count:
        raise NotSupported("boundaries whose number is not known", "changing")

    def read(number: int, place: Index, bounds: Sequence[tuple[Var, Node]] = ()) -> Node:
        if sorter is None:
            return b.load(boundaries, (*row, place), bounds)
        at = b.indirect(MOST_COMPARED + number, count, b.load(sorter, (*row, place), bounds))
        return b.load(boundaries, (*row, at[0]), [at])

    def is_before(boundary: Node) -> Node:
        # A NaN is behind all boundaries, as in the kernel.
        behind = b.op("gt" if right else "ge", b.cast(boundary, value.dtype), value)
        return b.op("logical_not", behind)

    if count <= MOST_COMPARED:
        found = (b.cast(is_before(read(k, k)), torch.int32) for k in range(count))
        return functools.reduce(lambda one, other: b.op("add", one, other), found)
    result: Node = b.const(0, torch.int64)
    step = 1 << (count.bit_length() - 1)
    for number in range(count.bit_length()):
        last = b.op("add", result, b.const(step - 1, torch.int64))  # the last boundary that is passed by this step
        at = Var(f"x{number}", count)
        inside = b.op("lt", last, b.const(count, torch.int64))
        bound = (at, b.op("minimum", last, b.const(count - 1, torch.int64)))
        passed = b.op("logical_and", inside, is_before(read(number, at, [bound])))
        result = b.where(passed, b.op("add", result, b.const(step, torch.int64)), result)
        step >>= 1
    return result


def _compared(values: TensorValue, boundaries: TensorValue) -> torch.dtype:
    """The dtype in which they are compared."""
    dtype = compute_dtype(promoted(values, boundaries))
    if dtype is torch.bool:
        raise NotSupported("an order of bools, for which torch has no kernel either")
    return dtype


@lowers(aten.bucketize.Tensor)
def bucketize(
    b: Builder, values: TensorValue, boundaries: TensorValue, *, out_int32: bool = False, right: bool = False
) -> TensorValue:
    dtype = _compared(values, boundaries)
    return b.loop(lambda p: _place(b, boundaries, (), b.cast(b.load(values, p), dtype), right))


@lowers(aten.searchsorted.Tensor)
def searchsorted(
    b: Builder,
    sequence: TensorValue,
    values: TensorValue,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: TensorValue | None = None,
) -> TensorValue | None:
    if not sequence.ndim or side not in (None, "left", "right"):
        return None
    dtype, behind = _compared(values, sequence), right or side == "right"
    rows = sequence.ndim - 1

    def element(p: Position) -> Node:
        return _place(b, sequence, p[:rows] if rows else (), b.cast(b.load(values, p), dtype), behind, sorter)

    return b.loop(element)
