"""Depthwise convolutions as loops: each channel of an image has a window of its own.

On a CPU the library spends more time on such a call than on its arithmetic, and here the following operators are part
of the loop. For the gradient of a large window over an image with channels last, oneDNN computes a product of all
channels of a block with each other, in memory with as many numbers for each one of the weight: 256 times its size with
AVX-512 (`DNNL_VERBOSE=1` shows a weight `aBCde16c16b`). A loop needs no such memory, and is faster over few pixels.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import torch

from armature.backend_api import Builder, Node, Position, TensorValue, index, lowers
from armature_aten_lowerings.windows import MOST_COMPARED

aten = torch.ops.aten
MOST_PIXELS = 1024
"""Pixels of all images up to which a loop computes the gradient of a large window: with one thread and AVX-512 it took
a quarter of oneDNN's time for 784 pixels of 96 channels, and one and a half times for 1568 pixels of 384."""


def depthwise_convolution(
    b: Builder,
    image: TensorValue,
    weight: TensorValue,
    bias: TensorValue | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> TensorValue | None:
    """A convolution with one channel of weights for each channel of the image; None for any other.

    With channels last, neighbouring channels are neighbours in memory if the weight is turned as well. In rows, only
    small windows are faster than the library's.
    """
    channels, windows = weight.shape[0], weight.shape[2:]
    if not channels == groups == image.shape[1] or not all(isinstance(n, int) for n in windows):
        return None
    if image.device.type != "cpu" or image.dtype not in (torch.float32, torch.float64):
        return None
    sizes = [n for n in windows if isinstance(n, int)]
    small, last = math.prod(sizes) <= MOST_COMPARED, image.strides[1] == 1
    if not (small or last):
        return None
    stride, padding, dilation = (per_axis(given, len(sizes)) for given in (stride, padding, dilation))
    taps = b.realize(weight, tuple(_channels_fastest(channels, sizes))) if last else weight

    def item(p: Position, step: Position) -> Node:
        where = [
            index.add(index.mul(c, s), index.mul(k, d), -pad)
            for c, s, k, d, pad in zip(p[2:], stride, step, dilation, padding, strict=True)
        ]
        pixel = b.load(image, (*p[:2], *where))
        if any(padding):
            pixel = b.masked(b.within(*zip(where, image.shape[2:], strict=True)), pixel, 0)
        return b.op("mul", pixel, b.load(taps, (p[1], 0, *step)))

    def element(p: Position) -> Node:
        if small:
            items = (item(p, step) for step in itertools.product(*map(range, sizes)))
            total = functools.reduce(lambda x, y: b.op("add", x, y), items)
        else:
            total = b.reduce_over("sum", sizes, lambda step: item(p, step))
        return total if bias is None else b.op("add", total, b.load(bias, (p[1],)))

    return b.loop(element)


@lowers(aten.convolution_backward.default)
def gradient_of_large_windows(
    b: Builder,
    gradient: TensorValue,
    image: TensorValue,
    weight: TensorValue,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[TensorValue | None, ...] | None:
    """The gradient of the weight alone (`gradients.compute_windows_apart`), if it is large and there are few pixels."""
    if [*output_mask] != [False, True, False] or transposed or image.device.type != "cpu":
        return None
    if not is_worth_a_loop(weight.shape, groups, image.shape, image.strides, gradient.shape, image.dtype):
        return None
    rank = len(weight.shape) - 2
    stride, padding, dilation = (per_axis(given, rank) for given in (stride, padding, dilation))

    def element(p: Position) -> Node:
        def item(pixel: Position) -> Node:
            where = [
                index.add(index.mul(c, s), index.mul(k, d), -pad)
                for c, s, k, d, pad in zip(pixel[1:], stride, p[2:], dilation, padding, strict=True)
            ]
            number = b.load(image, (pixel[0], p[0], *where))
            if any(padding):
                number = b.masked(b.within(*zip(where, image.shape[2:], strict=True)), number, 0)
            return b.op("mul", number, b.load(gradient, (pixel[0], p[0], *pixel[1:])))

        return b.reduce_over("sum", (gradient.shape[0], *gradient.shape[2:]), item)

    return None, b.loop(element, b.spec(1)), None


def is_worth_a_loop(
    weight: Sequence[index.Index],
    groups: int,
    image: Sequence[index.Index],
    strides: Sequence[index.Index],
    result: Sequence[index.Index],
    dtype: torch.dtype,
) -> bool:
    """Whether a loop takes no longer than the library: shapes of the weight, the image and the convolution's result."""
    pixels = [n for n in (result[0], *result[2:]) if isinstance(n, int)]
    window = [n for n in weight[2:] if isinstance(n, int)]
    if len(pixels) + 1 != len(result) or len(window) + 2 != len(weight):
        return False
    depthwise = weight[0] == groups == image[1]
    large = math.prod(window) > MOST_COMPARED and math.prod(pixels) <= MOST_PIXELS
    return depthwise and large and strides[1] == 1 and dtype in (torch.float32, torch.float64)


def per_axis(given: Sequence[int], rank: int) -> list[int]:
    """One number stands for all axes: torch passes [0] for padding="valid"."""
    return [*given] * (rank if len(given) == 1 else 1)


def _channels_fastest(channels: index.Index, sizes: Sequence[int]) -> list[index.Index]:
    """Strides of a weight [C, 1, ...] whose channels are next to each other."""
    strides = [index.mul(channels, math.prod(sizes[k + 1 :])) for k in range(len(sizes))]
    return [1, channels, *strides]
