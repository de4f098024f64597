"""Maximum pooling with windows at places that random samples choose."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch

from armature.backend_api import (
    Builder,
    Index,
    Node,
    NotSupported,
    Position,
    TensorValue,
    Var,
    compute_dtype,
    contiguous_strides,
    index,
    layout,
    lowers,
)

aten = torch.ops.aten
MOST_READ = 27  # most elements of a window that are unrolled


def _start(b: Builder, sample: Node, number: Index, room: Index, count: Index, rounded: Callable[[Node], Node]) -> Node:
    """Where window `number` of `count` starts, of which the last may start at `room`: the kernel's formula."""

    def whole(value: Index) -> Node:
        return rounded(b.index_value(value, sample.dtype))

    def place(along: Node) -> Node:
        return b.cast(rounded(b.op("mul", along, alpha)), torch.int64)

    last = b.index_value(room)
    if count == 1:
        return last
    alpha = rounded(b.op("div", whole(room), whole(index.sub(count, 1))))
    start = b.op("sub", place(rounded(b.op("add", whole(number), sample))), place(sample))
    at_end = b.op("eq", b.index_value(number), b.index_value(index.sub(count, 1)))
    return b.where(at_end, last, start)


@lowers(aten.fractional_max_pool2d.default, aten.fractional_max_pool3d.default)
def fractional_max_pool(
    b: Builder, x: TensorValue, kernel: Sequence[int], size: Sequence[Index], samples: TensorValue
) -> tuple[TensorValue, TensorValue | None]:
    """The maximum of each window, and its position in the image. Windows start where the samples of a channel say: in
    2-D the first is that of the last axis."""
    outer, wide = x.ndim - len(kernel), compute_dtype(x.dtype)
    if math.prod(kernel) > MOST_READ:
        raise NotSupported("windows of many elements", "cost")
    image, sizes = x.shape[outer:], contiguous_strides(x.shape[outer:])
    columns = range(len(kernel))[:: -1 if len(kernel) == 2 else 1]
    chosen = samples if samples.ndim == outer + 1 else layout.select(samples, 0, 0)
    narrow = x.dtype if x.device.type == "cpu" else wide  # a GPU's kernel computes places in float32

    def rounded(value: Node) -> Node:
        return b.cast(b.cast(value, narrow), wide)

    def bound(p: Position, axis: int) -> tuple[Var, Node]:
        room = index.sub(image[axis], kernel[axis])
        sample = b.read(chosen, (*p[:outer], columns[axis]), wide)
        start = _start(b, sample, p[outer + axis], room, size[axis], rounded)
        return b.indirect(axis, index.add(room, 1), start)

    def largest(p: Position) -> tuple[Node, Node]:
        bounds = [bound(p, axis) for axis in range(len(kernel))]
        best: tuple[Node, Node] | None = None
        for step in itertools.product(*map(range, kernel)):
            where = [index.add(var, k) for (var, _), k in zip(bounds, step, strict=True)]
            value = b.cast(b.load(x, (*p[:outer], *where), bounds), wide)
            place = _linear(b, bounds, step, sizes)
            if best is None:
                best = value, place
                continue
            better = b.op("logical_or", b.op("gt", value, best[0]), b.op("isnan", value))
            best = b.where(better, value, best[0]), b.where(better, place, best[1])
        assert best is not None
        return best

    values = b.loop(lambda p: largest(p)[0])
    return values, b.loop(lambda p: largest(p)[1], b.spec(1)) if b.is_read(1) else None


def _linear(b: Builder, bounds: Sequence[tuple[Var, Node]], step: Sequence[int], strides: Sequence[Index]) -> Node:
    """The row-major position in the image of an element of a window."""
    total: Node | None = None
    for (_, start), k, stride in zip(bounds, step, strides, strict=True):
        at = b.op("add", start, b.const(k, torch.int64)) if k else start
        part = at if stride == 1 else b.op("mul", at, b.index_value(stride))
        total = part if total is None else b.op("add", total, part)
    assert total is not None
    return total
