"""Depthwise convolutions as loops: each channel of an image has a window of its own.

On a CPU the library spends more time on such a call than on its arithmetic, and here the following operators are part
of the loop.
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


@lowers(aten.convolution.default)
def depthwise_convolution(
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
    """One channel of weights for each channel of the image; all others are the library's.

    With channels last, neighbouring channels are neighbours in memory if the weight is turned as well. In rows, only
    small windows are faster than the library's.
    """
    channels, windows = weight.shape[0], weight.shape[2:]
    if transposed or not channels == groups == image.shape[1] or not all(isinstance(n, int) for n in windows):
        return None
    if image.device.type != "cpu" or image.dtype not in (torch.float32, torch.float64):
        return None
    sizes = [n for n in windows if isinstance(n, int)]
    small, last = math.prod(sizes) <= MOST_COMPARED, image.strides[1] == 1
    if not (small or last):
        return None
    # One number stands for all axes: torch passes [0] for padding="valid".
    stride, padding, dilation = (
        [*given] * (len(sizes) if len(given) == 1 else 1) for given in (stride, padding, dilation)
    )
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


def _channels_fastest(channels: index.Index, sizes: Sequence[int]) -> list[index.Index]:
    """Strides of a weight [C, 1, ...] whose channels are next to each other."""
    strides = [index.mul(channels, math.prod(sizes[k + 1 :])) for k in range(len(sizes))]
    return [1, channels, *strides]
