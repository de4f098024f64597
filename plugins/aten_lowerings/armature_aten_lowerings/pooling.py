"""Maximum pooling as loops, with the window unrolled."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import torch

from armature.backend_api import (
    Builder,
    Node,
    Position,
    TensorValue,
    compute_dtype,
    index,
    lowers,
)
from armature_aten_lowerings.windows import MOST_COMPARED, pair

aten = torch.ops.aten


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
