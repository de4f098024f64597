"""Seam to DistributedDataParallel: which one is at work on this thread, and how its reducer groups gradients.

The reducer sums a group of gradients over all processes (a bucket) as soon as all of them are there, while backward
goes on. It has no interface that says which parameters are in which bucket, so what it does is done here once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

AVAILABLE = dist.is_available()
_DIST: Any = dist  # not all that it has is in its types
_PARALLEL: Any = torch.nn.parallel.DistributedDataParallel


def active() -> Any:
    """The DistributedDataParallel whose forward calls the module that it wraps just now, or None."""
    return _PARALLEL._get_active_ddp_module() if AVAILABLE else None


def reduced(parallel: Any) -> list[torch.nn.Parameter]:
    """The parameters whose gradients it sums, in the order of their definition."""
    if parallel._delay_all_reduce_all_params:
        return []
    return [parameter for parameter in parallel._module_parameters if parameter.requires_grad]


def keeps_buckets(parallel: Any) -> bool:
    """Whether buckets go by the order of definition for good; else, from the second backward on, by the order in which
    the first one made gradients."""
    return bool(parallel.find_unused_parameters and not parallel.static_graph)


def buckets(parallel: Any, parameters: Sequence[torch.Tensor]) -> list[list[int]]:
    """Parameters that stand in the order that counts, as the buckets of the reducer: positions."""
    limits = list(getattr(parallel, "bucket_bytes_cap_list", ())) or [parallel.bucket_bytes_cap]
    if limits == [parallel.bucket_bytes_cap] and parallel.bucket_bytes_cap_default:
        limits.insert(0, _DIST._DEFAULT_FIRST_BUCKET_BYTES)
    return list(_DIST._compute_bucket_assignment_by_size(list(parameters), limits)[0])
