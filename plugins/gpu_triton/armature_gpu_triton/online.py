"""Online softmax: computes `sum(exp(v - max(v)))` in the loop that finds the maximum, so that a long row is read once
less.

Each lane has a sum relative to the largest value that it has seen, and rescales it when it sees a larger one. A lane is
a few neighbours of a row that one thread loads at once, so that rescaling costs little compared with the sum.
"""

from __future__ import annotations

import torch

from armature.backend_api import Accumulate, KernelBody, Node, Op, Reduce
from armature_gpu_triton.autotune import Config

LANE = 8
LOWEST = float(torch.finfo(torch.float32).min)  # initial maximum of a lane, because -inf minus itself would be NaN


def lane_width(config: Config) -> int:
    """Neighbours in a lane: one if a thread's elements are in different rows."""
    return LANE if config.rblock >= LANE * config.xblock else 1


def online_sums(body: KernelBody, fresh: frozenset[Node]) -> dict[Node, Accumulate]:
    """The sums that can be computed this way, by their maximum. `fresh`: values that may change between passes."""
    found: dict[Node, Accumulate] = {}
    for first, second, source in zip(body.passes, body.passes[1:], body.kernel.passes[1:], strict=False):
        if len(second.reductions) != 1 or source.inner_stores:
            continue
        largest = largest_of(second.reductions[0].node)
        if largest is not None and largest.value not in fresh and largest in [a.node for a in first.reductions]:
            found[largest] = second.reductions[0]
    return found


def largest_of(total: Reduce) -> Reduce | None:
    """The `max(v)` of a float32 `sum(exp(v - max(v)))`; None for anything else."""
    value = total.value
    if total.op != "sum" or total.dtype != torch.float32 or not isinstance(value, Op) or value.op != "exp":
        return None
    (shifted,) = value.args
    if not isinstance(shifted, Op) or shifted.op != "sub":
        return None
    plain, largest = shifted.args
    if not isinstance(largest, Reduce) or largest.op != "max" or largest.value is not plain:
        return None
    return largest if largest.dtype == plain.dtype == torch.float32 else None
