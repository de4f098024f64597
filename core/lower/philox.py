"""Philox4x32-10, the counter-based generator of GPUs, and the uniform numbers that eager's dropout makes of it.

Each number is computed from the seed and the element's position alone, so a kernel computes those that it needs and
stores none. These torch functions are the reference for the code of back ends.
"""

from __future__ import annotations

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox(seed: Tensor, counter: Tensor, stream: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four numbers of 32 bits (in int64) for a counter in one of the seed's streams; all arguments are int64."""
    a, b = counter & WORD, counter >> 32 & WORD
    c, d = stream & WORD, stream >> 32 & WORD
    low, high = seed & WORD, seed >> 32 & WORD
    for _ in range(ROUNDS):
        first, second = a * MULTIPLIERS[0], c * MULTIPLIERS[1]  # of 64 bits, which wrap
        a, b = (second >> 32 & WORD) ^ b ^ low, second & WORD
        c, d = (first >> 32 & WORD) ^ d ^ high, first & WORD
        low, high = low + STEPS[0] & WORD, high + STEPS[1] & WORD
    return a, b, c, d


def uniform(seed: Tensor, offset: Tensor, element: Tensor, vector: Tensor, threads: Tensor) -> Tensor:
    """The float32 in (0, 1] that eager draws for an element; all arguments are int64.

    Eager's kernel has `threads` threads, each with a stream of its own. A thread handles `vector` adjacent elements and
    then continues `vector * threads` elements further. One counter yields the numbers of four elements: adjacent ones,
    or, if `vector` is 1, four elements that are `threads` apart.
    """
    single = vector == 1
    stride = torch.where(single, 4, vector) * threads
    step, within = element // stride, torch.where(single, element // threads % 4, element % vector)
    counter = offset // 4 + step * torch.clamp(vector // 4, min=1) + within // 4
    words = torch.stack(torch.broadcast_tensors(*philox(seed, counter, element // vector % threads)))
    chosen = words.gather(0, (within % 4).expand(words.shape[1:]).unsqueeze(0)).squeeze(0)
    return chosen.to(torch.float32) * 2.0**-32 + 2.0**-33
