"""Convolutions as loops: depthwise ones on a CPU, and products of matrices for back ends that measure.

An image with channels last is a matrix with a row for each pixel. A convolution multiplies it by a matrix for each
element of the window and sums these products, so that a kernel for products of matrices can compute it, together with
the batch norm, the activation and the residual that follow (`products`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from armature.backend_api import Builder, Node, Position, TensorValue, compute_dtype, hint, index, lowers
from armature_aten_lowerings.depthwise import depthwise_convolution, per_axis
from armature_aten_lowerings.products import is_chosen

aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)
"""In float32 torch rounds what a convolution multiplies by other rules than what a product of matrices does."""
FEWEST_CHANNELS = 16
"""Channels of an image from which on a product of matrices is no less than half full: a matrix unit's operand."""


@lowers(aten.convolution.default)
def convolution(
    b: Builder,
    image: TensorValue,
    weight: TensorValue,
    bias: TensorValue | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> TensorValue | None:
    """A convolution that is faster as a loop, or may be; all others are the library's."""
    if transposed:
        return None
    if is_product(b, image, weight, groups):
        return product_of_pixels(b, image, weight, bias, stride, padding, dilation)
    return depthwise_convolution(b, image, weight, bias, stride, padding, dilation, groups)


def is_product(b: Builder, image: TensorValue, weight: TensorValue, groups: int) -> bool:
    """Whether a convolution of whole images with channels last may be a product of matrices."""
    if len(image.shape) != 4 or groups != 1 or image.dtype not in HALVES:
        return False
    static = all(isinstance(n, int) for n in (*image.shape[1:], *weight.shape))
    # A back end tells from the loops how to call the library, which it can for whole images.
    wanted = channels_last(*image.shape[1:])
    layout = zip(image.shape[1:], image.strides[1:], wanted[1:], strict=True)
    last = image.strides[0] == wanted[0] and all(size == 1 or stride == step for size, stride, step in layout)
    return (
        static and image.is_whole and last and is_chosen(b, image, weight) and hint(weight.shape[1]) >= FEWEST_CHANNELS
    )


def product_of_pixels(
    b: Builder,
    image: TensorValue,
    weight: TensorValue,
    bias: TensorValue | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> TensorValue:
    """The sum, over a window's elements and an image's channels, of pixels times weights."""
    channels, sizes = weight.shape[1], [n for n in weight.shape[2:] if isinstance(n, int)]
    stride, padding, dilation = (per_axis(given, len(sizes)) for given in (stride, padding, dilation))
    single = math.prod(sizes) == 1
    taps = weight if single or weight.strides[1] == 1 else b.realize(weight, channels_last(channels, *sizes))
    summed = compute_dtype(image.dtype)

    def item(p: Position, step: Position) -> Node:
        *window, channel = step if not single else (0, 0, *step)
        where = [
            index.add(index.mul(c, s), index.mul(k, d), -pad)
            for c, s, k, d, pad in zip(p[2:], stride, window, dilation, padding, strict=True)
        ]
        pixel = b.load(image, (p[0], channel, *where))
        if any(padding):
            pixel = b.masked(b.within(*zip(where, image.shape[2:], strict=True)), pixel, 0)
        return b.op("product", pixel, b.load(taps, (p[1], channel, *window)), dtype=summed)

    def element(p: Position) -> Node:
        total = b.reduce_over("sum", (channels,) if single else (*sizes, channels), lambda step: item(p, step))
        return total if bias is None else b.op("add", total, b.read(bias, (p[1],)))

    return b.loop(element)


def channels_last(channels: index.Index, *sizes: index.Index) -> tuple[index.Index, ...]:
    """Strides of a dense tensor [..., channels, height, width] whose channels are next to each other."""
    height, width = sizes
    row = index.mul(width, channels)
    return (index.mul(height, row), 1, row, channels)
