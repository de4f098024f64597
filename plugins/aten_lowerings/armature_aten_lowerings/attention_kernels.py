"""Which attention pays as one operator, by the fused kernels of each type of device.

On a CPU, its kernels never write the scores of all queries and keys to memory. That pays from half a million scores on,
with gradients too (measured with one thread, as CPU time: 0.55 to 0.85 of the loops' in inference, 0.8 to 1.02 in
training; below that up to 1.4 times as much; in float16 0.4 and 0.9). In bfloat16, a library's products and the loops
are as fast or faster (where the CPU computes in it: 0.93 to 1.47 of the loops' time, in training 1.06 to 2), so only
the memory counts, from 128 MB of scores on.

On a GPU, loops write scores and weights and read both: 8 bytes for each score in 16 bits, 16 in float32. In 16 bits the
kernels take 0.2 to 0.45 of the loops' time for 100 million scores (H200, `python -m benchmarks.written_attention`), 0.6
to 0.9 with gradients, and as long as they for a quarter of a million. They don't pay with a few queries, as when one
token is generated, where keys and values are most of what is read. Those for float32 multiply each number in three
parts of TF32, which loses at most the last bits, whatever the setting for products: they take 0.9 of the loops' time in
inference, up to 1.08 in training, and 1.4 to 2 where products may be of TF32. Those for wide heads have no room for a
result in registers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import attrs
import torch
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)


@attrs.frozen
class Kernels:
    """What is known of the kernels of a type of device.

    least: from how many scores on they pay, by dtype; other dtypes have none. queries: the fewest of a head. widths: of
    a head, the greatest. multiple: what a head's width in 16 bits is a multiple of. in_order: whether gradients are
    summed in the same order each time. chosen: whether torch chooses for each call, and may choose none of them.
    """

    least: Mapping[torch.dtype, int]
    queries: int = 1
    widths: Mapping[torch.dtype, int] = {}
    multiple: int = 1
    in_order: bool = True
    forward: Collection[torch.dtype] = ()
    exact: bool = False
    chosen: bool = False

    def pay(self, width: int, dtype: torch.dtype, scores: Sequence[int], training: bool) -> bool:
        """Whether they are faster than loops. width: of a head. scores: the sizes of all scores, [..., L, S]."""
        if training and not self.in_order and torch.are_deterministic_algorithms_enabled():
            return False
        if training and dtype in self.forward:
            return False
        if self.exact and dtype is torch.float32 and torch.get_float32_matmul_precision() != "highest":
            return False
        if width > self.widths.get(dtype, width) or (dtype in HALVES and width % self.multiple):
            return False
        return dtype in self.least and math.prod(scores) >= self.least[dtype] and scores[-2] >= self.queries


ON_CPU = Kernels(
    {torch.float32: 1 << 19, torch.float64: 1 << 19, torch.float16: 1 << 19, torch.bfloat16: 1 << 26},
)
ON_GPU = Kernels(
    {torch.float32: 1 << 16, torch.float16: 1 << 16, torch.bfloat16: 1 << 16},
    queries=16,
    widths={torch.float32: 128, torch.float16: 256, torch.bfloat16: 256},
    multiple=8,
    in_order=False,
    forward=frozenset((torch.float32,)),
    exact=True,
    chosen=True,
)
KERNELS: dict[str, Kernels] = {"cpu": ON_CPU, "cuda": ON_GPU}
"""By type of device."""


def may_pay(fake: object) -> bool:
    """Whether a tensor may be the scores of attention that pays as one operator."""
    if not isinstance(fake, Tensor) or not all(type(size) is int for size in fake.shape):
        return False
    kernels = KERNELS.get(fake.device.type)
    return kernels is not None and fake.numel() >= min(kernels.least.values())
