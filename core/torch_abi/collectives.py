"""Collectives of torch.distributed as functions of tensors, with the process group given by name.

The operators of `_c10d_functional` return new tensors; those behind the public functions write in place and are hidden
from compilers. Waiting for a result is a separate operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

AVAILABLE = dist.is_available()
if AVAILABLE:
    import torch.distributed.tensor  # handlers refer to its functions; torch's compilers import it anyway
_C10D: Any = getattr(dist, "distributed_c10d", None)
_OPERATORS: Any = torch.ops._c10d_functional

# The operators' names for reductions.
REDUCTIONS: dict[Any, str] = (
    {
        getattr(dist.ReduceOp, name): name.lower()
        for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
    }
    if AVAILABLE
    else {}
)


def group_or_default(group: ProcessGroup | None) -> ProcessGroup:
    """The group, with None meaning the default group of all processes. Raises ValueError if there is none."""
    found: ProcessGroup = _C10D._get_default_group() if group is None else group
    return found


def is_coalescing(group: ProcessGroup) -> bool:
    """Whether collectives of the group are being collected for a single launch later."""
    return group in _C10D._world.pg_coalesce_state


def all_reduce(tensor: torch.Tensor, reduction: str, group: str) -> torch.Tensor:
    """The reduction over all processes."""
    whole: torch.Tensor = _OPERATORS.wait_tensor(_OPERATORS.all_reduce(tensor, reduction, group))
    return whole


def all_gather(tensor: torch.Tensor, size: int, group: str) -> torch.Tensor:
    """The tensors of all processes, concatenated along the first dimension."""
    whole: torch.Tensor = _OPERATORS.wait_tensor(_OPERATORS.all_gather_into_tensor(tensor, size, group))
    return whole


def reduce_scatter(tensor: torch.Tensor, reduction: str, size: int, group: str) -> torch.Tensor:
    """This process's slice, along the first dimension, of the reduction."""
    whole: torch.Tensor = _OPERATORS.wait_tensor(_OPERATORS.reduce_scatter_tensor(tensor, reduction, size, group))
    return whole


def all_to_all(tensor: torch.Tensor, received: Sequence[int], sent: Sequence[int], group: str) -> torch.Tensor:
    """The tensors that all processes send to this one, concatenated along the first dimension."""
    whole: torch.Tensor = _OPERATORS.wait_tensor(_OPERATORS.all_to_all_single(tensor, received, sent, group))
    return whole


# The functions of armature that may be traced into: they call no others of armature.
TRACED = (group_or_default, is_coalescing, all_reduce, all_gather, reduce_scatter, all_to_all)

_NAMES = (
    "all_reduce", "broadcast", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single",
    "all_reduce_coalesced", "all_gather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced",
)  # fmt: skip
# The operators whose result is still being written until it is waited for, and the one that waits.
STARTING: tuple[Any, ...] = tuple(getattr(_OPERATORS, name).default for name in _NAMES) if AVAILABLE else ()
WAITING: tuple[Any, ...] = (_OPERATORS.wait_tensor.default,) if AVAILABLE else ()
