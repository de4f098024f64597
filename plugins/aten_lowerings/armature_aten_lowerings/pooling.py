"""Pooling as loops: average pooling over the window, maximum pooling with the window unrolled."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import torch

from armature.backend_api import (
    Builder,
    Index,
    Node,
    Position,
    TensorValue,
    compute_dtype,
    index,
    lowers,
)
from armature_aten_lowerings.windows import MOST_COMPARED, pair

aten = torch.ops.aten


@lowers(aten._adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(b: Builder, x: TensorValue, size: Sequence[Index]) -> TensorValue | None:
    inner = x.shape[-2:]
    pairs = [(n, k) for n, k in zip(inner, size, strict=True) if isinstance(n, int) and isinstance(k, int)]
    if len(pairs) < len(inner) or not all(k and n % k == 0 for n, k in pairs):
        return None
    windows = tuple(n // k for n, k in pairs)
    return _windowed_mean(b, x, windows, windows, (0, 0), windows[0] * windows[1])


@lowers(aten.avg_pool2d.default)
def avg_pool2d(
    b: Builder,
    x: TensorValue,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> TensorValue | None:
    windows = pair(kernel)
    pads = pair(padding)
    if ceil_mode or (pads != (0, 0) and not count_include_pad and divisor is None):
        return None
    return _windowed_mean(b, x, windows, pair(stride or kernel), pads, divisor or windows[0] * windows[1])


@lowers(aten.avg_pool2d_backward.default)
def avg_pool2d_backward(
    b: Builder,
    grad: TensorValue,
    x: TensorValue,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> TensorValue | None:
    """Windows that touch but do not overlap: each element has the gradient of its window, or none."""
    windows = pair(kernel)
    if ceil_mode or pair(stride or kernel) != windows or pair(padding) != (0, 0):
        return None
    dtype = compute_dtype(x.dtype)
    count = b.const(divisor or windows[0] * windows[1], dtype)

    def element(p: Position) -> Node:
        where = [index.floordiv(c, size) for c, size in zip(p[-2:], windows, strict=True)]
        value = b.op("div", b.read(grad, (*p[:-2], *where), dtype), count)
        return b.masked(b.within(*zip(where, grad.shape[-2:], strict=True)), value, 0)

    return b.loop(element)


@lowers(aten.upsample_nearest2d_backward.default)
def upsample_nearest2d_backward(
    b: Builder,
    grad: TensorValue,
    output_size: Sequence[Index],
    input_size: Sequence[Index],
    scale_h: float | None = None,
    scale_w: float | None = None,
) -> TensorValue | None:
    """By whole factors: each element has the sum of the gradients of its copies."""
    pairs = [(n, k) for n, k in zip(output_size, input_size[-2:], strict=True) if isinstance(n, int)]
    if len(pairs) < 2 or not all(isinstance(k, int) and k and n % k == 0 for n, k in pairs):
        return None
    factors = tuple(n // k for n, k in pairs if isinstance(k, int))
    if any(scale not in (None, factor) for scale, factor in zip((scale_h, scale_w), factors, strict=True)):
        return None
    dtype = compute_dtype(grad.dtype)

    def item(p: Position, step: Position) -> Node:
        where = [index.add(index.mul(c, factor), k) for c, factor, k in zip(p[-2:], factors, step, strict=True)]
        return b.read(grad, (*p[:-2], *where), dtype)

    return b.loop(lambda p: b.reduce_over("sum", factors, lambda step: item(p, step)))


@lowers(aten.max_pool2d_with_indices.default)
def max_pool2d_with_indices(
    b: Builder,
    x: TensorValue,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
) -> tuple[TensorValue, None] | None:
    """The maximum of each window. If positions in the image are read, the library is faster; for small windows backward
    gets positions in the window instead (`saving.keep_places_in_windows`)."""
    windows, strides, pads, steps = map(pair, (kernel, stride or kernel, padding, dilation))
    if b.is_read(1) or windows[0] * windows[1] > MOST_COMPARED or not x.dtype.is_floating_point:
        return None
    inside = not ceil_mode and pads == (0, 0)

    def item(p: Position, step: tuple[int, ...]) -> Node:
        where = [
            index.add(index.mul(c, s), k * d, -pad)
            for c, s, k, d, pad in zip(p[-2:], strides, step, steps, pads, strict=True)
        ]
        value = b.cast(b.load(x, (*p[:-2], *where)), compute_dtype(x.dtype))
        return value if inside else b.masked(b.within(*zip(where, x.shape[-2:], strict=True)), value, -math.inf)

    def largest(p: Position) -> Node:
        items = (item(p, step) for step in itertools.product(*map(range, windows)))
        return functools.reduce(lambda best, value: b.op("maximum", best, value), items)

    return b.loop(largest), None


def _windowed_mean(
    b: Builder,
    x: TensorValue,
    windows: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    divisor: int,
) -> TensorValue:
    dtype = compute_dtype(x.dtype)

    def item(p: Position, step: Position) -> Node:
        where = [index.add(index.mul(c, s), k, -pad) for c, s, k, pad in zip(p[-2:], strides, step, pads, strict=True)]
        position = (*p[:-2], *where)
        value = b.cast(b.load(x, position), dtype)
        if tuple(pads) == (0, 0):
            return value
        return b.masked(b.within(*zip(where, x.shape[-2:], strict=True)), value, 0)

    return b.loop(lambda p: b.op("div", b.reduce_over("sum", windows, lambda r: item(p, r)), b.const(divisor, dtype)))
