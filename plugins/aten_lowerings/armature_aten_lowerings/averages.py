"""Average pooling and its gradient, over any number of axes: for the gradient, each element of the image adds up the
contributions of the windows that contain it."""

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
    NotSupported,
    Position,
    TensorValue,
    compute_dtype,
    index,
    lowers,
)
from armature_aten_lowerings.windows import MOST_COMPARED

aten = torch.ops.aten
# widest windows of unequal sizes that become loops if vectors run along rows: measured against ATen's kernel, 7
# elements had 1.1 times its speed, 8 had 0.7
MOST_IN_ROWS = 7


@attrs.frozen
class Axis:
    """The windows along one axis of an image: `out` windows of `window` elements, each `stride` after the one before;
    the first begins `pad` before the image's `size` elements. partial: whether windows may end behind the padding."""

    size: Index
    out: Index
    window: int
    stride: int
    pad: int
    partial: bool

    @property
    def touching(self) -> int:
        """The largest number of windows that contain one element."""
        return -(-self.window // self.stride)

    @property
    def stays_inside(self) -> bool:
        """Whether each window lies within the image."""
        return not self.pad and not self.partial

    def place(self, window: Index, step: Index) -> Index:
        """The coordinate in the image of an element of a window."""
        return index.add(index.mul(window, self.stride), step, -self.pad)

    def holder(self, place: Index, step: Index) -> tuple[Index, Index]:
        """The window that is `step` before the last one that may contain the element at a coordinate, and the element's
        place in it."""
        past = index.add(place, self.pad)
        window = index.sub(index.floordiv(past, self.stride), step)
        return window, index.add(index.mod(past, self.stride), index.mul(step, self.stride))

    def check(self, window: Index, step: Index) -> tuple[Index, Index] | None:
        """An index and a size: the window's element is in the image if `0 <= index < size`. None: it always is."""
        return None if self.stays_inside else (self.place(window, step), self.size)

    def length(self, window: Index) -> Index:
        """How many elements a window has, padding included."""
        return self.window

    def count(self, b: Builder, window: Index, include_pad: bool) -> Node | int:
        """By how many elements a window's sum is divided."""
        if self.stays_inside or (include_pad and not self.partial):
            return self.window
        begin = self.place(window, 0)
        end = _smaller(b, index.add(begin, self.window), index.add(self.size, self.pad if include_pad else 0))
        first = b.index_value(begin)
        if not include_pad and self.pad:
            first = b.op("maximum", first, b.const(0, torch.int64))
        return b.op("sub", end, first)


@attrs.frozen
class EvenWindows:
    """Windows that divide `size` elements along one axis into `out` parts of nearly equal length; neighbours may share
    an element. It has the same properties as Axis."""

    size: int
    out: int

    @functools.cached_property
    def lengths(self) -> frozenset[int]:
        """The numbers of elements of the windows."""
        return frozenset(-(-(n + 1) * self.size // self.out) - n * self.size // self.out for n in range(self.out))

    @property
    def window(self) -> int:
        """The most elements of a window."""
        return max(self.lengths)

    @property
    def stride(self) -> int:
        """The largest distance from a window to the next one, in elements."""
        return -(-self.size // self.out)

    @property
    def touching(self) -> int:
        """The largest number of windows that contain one element."""
        return EvenWindows(self.out, self.size).window

    def begin(self, window: Index) -> Index:
        """The coordinate of a window's first element."""
        return index.floordiv(index.mul(window, self.size), self.out)

    def place(self, window: Index, step: Index) -> Index:
        """The coordinate in the image of an element of a window."""
        return index.add(self.begin(window), step)

    def check(self, window: Index, step: Index) -> tuple[Index, Index] | None:
        """An index and a size: the element belongs to the window if `0 <= index < size`. None: it always does."""
        return None if len(self.lengths) == 1 else (step, self.length(window))

    def length(self, window: Index) -> Index:
        """How many elements a window has."""
        if len(self.lengths) == 1:
            return self.window
        past = index.add(index.mul(index.add(window, 1), self.size), self.out - 1)
        return index.sub(index.floordiv(past, self.out), self.begin(window))

    def holder(self, place: Index, step: Index) -> tuple[Index, Index]:
        """The window that is `step` after the first one that may contain the element at a coordinate, and the element's
        place in it."""
        window = index.add(index.floordiv(index.mul(place, self.out), self.size), step)
        return window, index.sub(place, self.begin(window))

    def count(self, b: Builder, window: Index, include_pad: bool) -> Node | int:
        """How many elements a window has."""
        length = self.length(window)
        return length if isinstance(length, int) else b.index_value(length)


def _smaller(b: Builder, one: Index, other: Index) -> Node:
    return b.op("minimum", b.index_value(one), b.index_value(other))


@attrs.frozen
class Windows:
    """The windows of an operator, and what their sums are divided by."""

    axes: tuple[Axis | EvenWindows, ...]
    include_pad: bool = True
    divisor: int | None = None

    def mean(self, b: Builder, total: Node, windows: Sequence[Index]) -> Node:
        """A sum over a window, divided."""
        counts = [axis.count(b, window, self.include_pad) for axis, window in zip(self.axes, windows, strict=True)]
        number = math.prod(count for count in counts if isinstance(count, int))
        if self.divisor is not None:
            return b.op("div", total, b.const(self.divisor, total.dtype))
        divisor: Node = b.const(number, total.dtype)
        for count in counts:
            if not isinstance(count, int):
                wide = b.cast(count, total.dtype)
                divisor = wide if isinstance(divisor, Const) and divisor.value == 1 else b.op("mul", divisor, wide)
        return b.op("div", total, divisor)


def summed(b: Builder, extents: Sequence[int], item: Callable[[Position], Node]) -> Node:
    """The sum of `item` at all steps within extents; a few steps are unrolled, which leaves a pointwise loop."""
    if math.prod(extents) > MOST_COMPARED:
        return b.reduce_over("sum", extents, item)
    items = (item(step) for step in itertools.product(*map(range, extents)))
    return functools.reduce(lambda one, other: b.op("add", one, other), items)


def where_inside(b: Builder, value: Node, *checks: tuple[Index, Index]) -> Node:
    """The value if `0 <= index < size` holds for every pair, else 0."""
    inside = b.within(*checks)
    return value if isinstance(inside, Const) else b.masked(inside, value, 0)


def pool(b: Builder, x: TensorValue, windows: Windows) -> TensorValue:
    """The mean of each window."""
    axes, dtype = windows.axes, compute_dtype(x.dtype)
    outer = x.ndim - len(axes)

    def item(p: Position, step: Position) -> Node:
        where = [axis.place(c, k) for axis, c, k in zip(axes, p[outer:], step, strict=True)]
        value = b.cast(b.load(x, (*p[:outer], *where)), dtype)
        checks = (axis.check(c, k) for axis, c, k in zip(axes, p[outer:], step, strict=True))
        return where_inside(b, value, *(check for check in checks if check))

    def element(p: Position) -> Node:
        total = summed(b, [axis.window for axis in axes], lambda step: item(p, step))
        return windows.mean(b, total, p[outer:])

    return b.loop(element)


def spread(b: Builder, grad: TensorValue, windows: Windows) -> TensorValue:
    """The gradient of `pool`."""
    axes, dtype = windows.axes, compute_dtype(grad.dtype)
    outer = grad.ndim - len(axes)
    if in_rows_of_a_cpu(grad) and axes[-1].stride > 1 and any(axis.touching > 1 for axis in axes):
        raise NotSupported("several reads for each element, of which the library needs fewer", "cost")

    def item(p: Position, step: Position) -> Node:
        pairs = [axis.holder(c, k) for axis, c, k in zip(axes, p[outer:], step, strict=True)]
        holders = [window for window, _ in pairs]
        value = windows.mean(b, b.read(grad, (*p[:outer], *holders), dtype), holders)
        checks = [
            check
            for axis, (window, place) in zip(axes, pairs, strict=True)
            for check in ((window, axis.out), (place, axis.length(window)))
        ]
        return where_inside(b, value, *checks)

    return b.loop(lambda p: summed(b, [axis.touching for axis in axes], lambda step: item(p, step)))


def in_rows_of_a_cpu(image: TensorValue) -> bool:
    """Whether vectors run along rows of the image, where each lane reads its own window. A GPU reads so anyway."""
    return image.device.type == "cpu" and image.strides[-1] == 1


def _several(values: Sequence[int], count: int) -> list[int]:
    """Expand an argument that is one number for all axes, or one for each axis."""
    return [*values] * (count if len(values) == 1 else 1)


def windows_of(
    image: Sequence[Index],
    out: Sequence[Index],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    include_pad: bool,
    divisor: int | None,
) -> Windows:
    """The windows by an operator's arguments, and the sizes of the image and of the result along the pooled axes."""
    kernels, strides, pads = (_several(one, len(image)) for one in (kernel, stride or kernel, padding))
    axes = tuple(
        Axis(size, n, k, s, pad, ceil_mode)
        for size, n, k, s, pad in zip(image, out, kernels, strides, pads, strict=True)
    )
    return Windows(axes, include_pad, divisor)


def _average(axes: int) -> Callable[..., TensorValue]:
    """The lowering of the operator that pools along this many axes."""

    def lowering(
        b: Builder,
        x: TensorValue,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        include_pad: bool = True,
        divisor: int | None = None,
    ) -> TensorValue:
        sizes = x.shape[-axes:], b.spec().shape[-axes:]
        return pool(b, x, windows_of(*sizes, kernel, stride, padding, ceil_mode, include_pad, divisor))

    return lowering


def _average_backward(axes: int) -> Callable[..., TensorValue]:
    """The lowering of its backward."""

    def lowering(
        b: Builder,
        grad: TensorValue,
        x: TensorValue,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        include_pad: bool,
        divisor: int | None,
    ) -> TensorValue:
        sizes = x.shape[-axes:], grad.shape[-axes:]
        return spread(b, grad, windows_of(*sizes, kernel, stride, padding, ceil_mode, include_pad, divisor))

    return lowering


avg_pool2d = lowers(aten.avg_pool2d.default)(_average(2))
avg_pool3d = lowers(aten.avg_pool3d.default)(_average(3))
avg_pool2d_backward = lowers(aten.avg_pool2d_backward.default)(_average_backward(2))
avg_pool3d_backward = lowers(aten.avg_pool3d_backward.default)(_average_backward(3))


@lowers(aten._adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(b: Builder, x: TensorValue, size: Sequence[Index]) -> TensorValue:
    return _adaptive(b, x, size)


@lowers(aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool3d(b: Builder, x: TensorValue, size: Sequence[Index]) -> TensorValue:
    return _adaptive(b, x, size)


@lowers(aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool2d_backward(b: Builder, grad: TensorValue, x: TensorValue) -> TensorValue:
    return spread(b, grad, Windows(dividing_windows(x.shape[-2:], grad.shape[-2:])))


@lowers(aten._adaptive_avg_pool3d_backward.default)
def adaptive_avg_pool3d_backward(b: Builder, grad: TensorValue, x: TensorValue) -> TensorValue | None:
    if in_rows_of_a_cpu(grad):  # the library reads once for each window
        return None
    return spread(b, grad, Windows(dividing_windows(x.shape[-3:], grad.shape[-3:])))


def dividing_windows(image: Sequence[Index], out: Sequence[Index]) -> tuple[Axis | EvenWindows, ...]:
    """The windows that divide an image. Errors: NotSupported if their sizes change."""
    axes: list[Axis | EvenWindows] = []
    for size, count in zip(image, out, strict=True):
        if not isinstance(size, int) or not isinstance(count, int) or not count or not size:
            raise NotSupported("windows whose sizes change", "changing")
        whole = not size % count
        axes.append(
            Axis(size, count, size // count, size // count, 0, partial=False) if whole else EvenWindows(size, count)
        )
    return tuple(axes)


def refuse_wide(x: TensorValue, axes: Sequence[Axis | EvenWindows]) -> None:
    """Errors: NotSupported for wide windows of unequal sizes, for which ATen's kernel is faster: each lane of a vector
    along rows would read many elements from positions of its own."""
    if isinstance(axes[-1], EvenWindows) and in_rows_of_a_cpu(x) and axes[-1].window > MOST_IN_ROWS:
        raise NotSupported("wide windows of several sizes in rows", "cost")


def _adaptive(b: Builder, x: TensorValue, size: Sequence[Index]) -> TensorValue:
    axes = dividing_windows(x.shape[-len(size) :], size)
    refuse_wide(x, axes)
    return pool(b, x, Windows(axes))
