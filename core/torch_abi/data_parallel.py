"""Seam to DistributedDataParallel: which instance is active on this thread, and how its reducer groups gradients.

The reducer sums a group of gradients (a bucket) over all processes as soon as all of them are available, while backward
continues. No interface tells which parameters are in which bucket, so this module recomputes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

AVAILABLE = dist.is_available()
_DIST: Any = dist  # its types lack some members
_PARALLEL: Any = torch.nn.parallel.DistributedDataParallel


def active() -> Any:
    """The DistributedDataParallel whose forward is calling its wrapped module now, or None."""
    return _PARALLEL._get_active_ddp_module() if AVAILABLE else None


def reduced(parallel: Any) -> list[torch.nn.Parameter]:
    """The parameters whose gradients it sums, in order of definition."""
    if parallel._delay_all_reduce_all_params:
        return []
    return [parameter for parameter in parallel._module_parameters if parameter.requires_grad]


def keeps_buckets(parallel: Any) -> bool:
    """Whether buckets always follow the order of definition; otherwise, from the second backward on, they follow the
    order in which the first one produced gradients."""
    return bool(parallel.find_unused_parameters and not parallel.static_graph)


def buckets(parallel: Any, parameters: Sequence[torch.Tensor]) -> list[list[int]]:
    """Group parameters, given in the relevant order, into the reducer's buckets; returns positions."""
    limits = list(getattr(parallel, "bucket_bytes_cap_list", ())) or [parallel.bucket_bytes_cap]
    if limits == [parallel.bucket_bytes_cap] and parallel.bucket_bytes_cap_default:
        limits.insert(0, _DIST._DEFAULT_FIRST_BUCKET_BYTES)
    return list(_DIST._compute_bucket_assignment_by_size(list(parameters), limits)[0])
