"""Maximum pooling as loops, with the window unrolled."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import attrs
import torch

from armature.backend_api import (
    Builder,
    Index,
    Node,
    NotSupported,
    Position,
    Spec,
    TensorValue,
    compute_dtype,
    contiguous_strides,
    hint,
    index,
    lowers,
)
from armature_aten_lowerings import averages
from armature_aten_lowerings.averages import dividing_windows, refuse_wide
from armature_aten_lowerings.windows import MOST_COMPARED

aten = torch.ops.aten


MOST_PLACED = 27  # most elements of a window whose position is computed, unrolled
MOST_ALONG = 16  # most elements of a window along one axis that are unrolled


@attrs.frozen
class Axis:
    """Windows along one axis of an image: their number of elements, the distance between windows, and that between
    their elements."""

    axis: int
    window: int
    stride: int
    pad: int
    step: int
    inside: bool  # whether each window is known to lie within the image

    def place(self, p: Position, number: int) -> Index:
        """The coordinate in the image of an element of the window at `p`."""
        return index.add(index.mul(p[self.axis], self.stride), number * self.step, -self.pad)


@lowers(aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)
def max_pool_with_indices(
    b: Builder,
    x: TensorValue,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[TensorValue, None] | None:
    """The maximum of each window. If positions in the image are read, the library is faster; for small windows backward
    gets positions in the window instead (`saving.keep_places_in_windows`)."""
    count = 2 if b.target is aten.max_pool2d_with_indices.default else 3
    lists = [[*one] * (count if len(one) == 1 else 1) for one in (kernel, stride or kernel, padding, dilation)]
    axes = [
        Axis(x.ndim - count + k, window, step, pad, apart, inside=not ceil_mode and not pad)
        for k, (window, step, pad, apart) in enumerate(zip(*lists, strict=True))
    ]
    if b.is_read(1):
        raise NotSupported("the positions of maxima in the image", "cost")
    if not x.dtype.is_floating_point or max(axis.window for axis in axes) > MOST_ALONG:
        return None
    if math.prod(axis.window for axis in axes) <= MOST_COMPARED:
        return _largest(b, x, axes, b.spec()), None
    # the maxima of rows, then of columns of these: a window of 5 x 5 takes 10 comparisons instead of 25
    for axis in reversed(axes):
        shape = [*x.shape]
        shape[axis.axis] = b.spec().shape[axis.axis]
        x = _largest(b, x, [axis], b.spec() if axis is axes[0] else _in_the_order_of(b.spec(), shape))
    return x, None


def _in_the_order_of(spec: Spec, shape: Sequence[Index]) -> Spec:
    """A dense layout of another shape, with neighbours along the same axes."""
    order = sorted(range(len(shape)), key=lambda axis: -hint(spec.strides[axis]))
    dense = contiguous_strides([shape[axis] for axis in order])
    strides = [dense[order.index(axis)] for axis in range(len(shape))]
    return Spec(tuple(shape), spec.dtype, spec.device, tuple(strides))


def _largest(b: Builder, x: TensorValue, axes: Sequence[Axis], spec: Spec) -> TensorValue:
    """The maximum over the windows along some axes."""

    def item(p: Position, numbers: tuple[int, ...]) -> Node:
        where = [*p]
        checks = []
        for axis, number in zip(axes, numbers, strict=True):
            where[axis.axis] = axis.place(p, number)
            if not axis.inside:
                checks.append((where[axis.axis], x.shape[axis.axis]))
        value = b.cast(b.load(x, where), compute_dtype(x.dtype))
        return b.masked(b.within(*checks), value, -math.inf) if checks else value

    def element(p: Position) -> Node:
        items = (item(p, numbers) for numbers in itertools.product(*(range(axis.window) for axis in axes)))
        return functools.reduce(lambda best, value: b.op("maximum", best, value), items)

    return b.loop(element, spec)


@lowers(aten.max_pool2d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.default)
def max_pool_with_indices_backward(
    b: Builder,
    grad: TensorValue,
    x: TensorValue,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    places: TensorValue,
) -> TensorValue:
    """Each element of the image adds up the gradients of the windows that may contain it and whose maximum it is."""
    count = 2 if b.target is aten.max_pool2d_with_indices_backward.default else 3
    outer, dtype = x.ndim - count, compute_dtype(grad.dtype)
    lists = [[*one] * (count if len(one) == 1 else 1) for one in (kernel, stride or kernel, padding, dilation)]
    axes = [
        averages.Axis(size, out, (window - 1) * apart + 1, step, pad, ceil_mode)
        for size, out, window, step, pad, apart in zip(x.shape[outer:], grad.shape[outer:], *lists, strict=True)
    ]
    touching = [axis.touching for axis in axes]
    if averages.in_rows_of_a_cpu(grad) or math.prod(touching) > MOST_COMPARED:
        raise NotSupported("several reads for each element, of which the library needs fewer", "cost")

    def item(p: Position, step: Position) -> Node:
        windows = [axis.holder(c, k)[0] for axis, c, k in zip(axes, p[outer:], step, strict=True)]
        place = b.index_value(index.linear(p[outer:], contiguous_strides(x.shape[outer:])))
        chosen = b.op("eq", b.load(places, (*p[:outer], *windows)), place)
        value = b.where(chosen, b.read(grad, (*p[:outer], *windows), dtype), b.const(0, dtype))
        return averages.where_inside(
            b, value, *((window, axis.out) for window, axis in zip(windows, axes, strict=True))
        )

    return b.loop(lambda p: averages.summed(b, touching, lambda step: item(p, step)))


@lowers(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool(
    b: Builder, x: TensorValue, size: Sequence[Index]
) -> tuple[TensorValue, TensorValue | None] | None:
    """The maximum of each of the parts into which an image is divided, and its position in the image."""
    outer = x.ndim - len(size)
    axes = dividing_windows(x.shape[outer:], size)
    windows = [axis.window for axis in axes]
    refuse_wide(x, axes)
    if not x.dtype.is_floating_point:
        return None
    if b.is_read(1) and math.prod(windows) > MOST_PLACED:
        raise NotSupported("the positions of maxima in wide windows", "cost")

    def place(p: Position, step: Position) -> list[Index]:
        return [axis.place(c, k) for axis, c, k in zip(axes, p[outer:], step, strict=True)]

    def item(p: Position, step: Position) -> Node:
        where = place(p, step)
        checks = [axis.check(c, k) for axis, c, k in zip(axes, p[outer:], step, strict=True)]
        value = b.cast(b.load(x, (*p[:outer], *where)), compute_dtype(x.dtype))
        needed = [check for check in checks if check]
        return b.masked(b.within(*needed), value, -math.inf) if needed else value

    def element(p: Position) -> Node:
        if math.prod(windows) > MOST_COMPARED:
            return b.reduce_over("max", windows, lambda step: item(p, step))
        items = (item(p, step) for step in itertools.product(*map(range, windows)))
        return functools.reduce(lambda best, value: b.op("maximum", best, value), items)

    def position(p: Position) -> Node:
        """Where the first of equal maxima is, or the last NaN."""
        chosen: tuple[Node, Node] | None = None
        for step in itertools.product(*map(range, windows)):
            value = item(p, step)
            at = b.index_value(index.linear(place(p, step), contiguous_strides(x.shape[outer:])))
            if chosen is None:
                chosen = value, at
                continue
            better = b.op("logical_or", b.op("gt", value, chosen[0]), b.op("isnan", value))
            chosen = b.where(better, value, chosen[0]), b.where(better, at, chosen[1])
        return chosen[1] if chosen else b.const(0, torch.int64)

    return b.loop(element), b.loop(position, b.spec(1)) if b.is_read(1) else None
