"""What the back end of a device can do: lowering and scheduling ask for a feature, never for a device."""

from __future__ import annotations

import attrs
import torch


@attrs.frozen
class Features:
    """What a back end can do, as data: the core asks for a feature, never for a device or a name.

    ops: operations of `armature.lower.ops.OPS` that it prints; an operator that needs another one stays an ATen call.
    reductions: keys of REDUCTIONS. dtypes: dtypes that kernels may load, store and compute with.
    atomic_add: dtypes of atomic stores. check_index: whether it can raise IndexError where an index is out of range.
    symbolic_sizes: whether kernels take sizes as arguments; without, graphs of changing sizes stay ATen calls.
    max_passes: most passes over the inner loop in one kernel. parallel: independent outer points below which a large
    kernel leaves most of the device idle. batch: most arguments of a `Batch` of kernels that is given to `generate` as
    one; 0: each kernel is launched by itself.
    """

    ops: frozenset[str]
    reductions: frozenset[str]
    dtypes: frozenset[torch.dtype]
    atomic_add: frozenset[torch.dtype] = frozenset()
    check_index: bool = True
    symbolic_sizes: bool = True
    max_passes: int = 8
    parallel: int = 4
    batch: int = 0
