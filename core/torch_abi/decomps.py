"""Seam to torch's own registry of decompositions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch._decomp import decomposition_table

Overload = torch._ops.OpOverload


def torch_decompositions(ops: Iterable[Overload]) -> Mapping[Overload, Callable[..., Any]]:
    """torch's decomposition of each operator that has one; the others are left out."""
    return {op: decomposition_table[op] for op in ops if op in decomposition_table}


def overload(name: str) -> Overload | None:
    """The operator "add.Tensor" of namespace aten, or None where this torch has none of that name."""
    packet, _, which = name.partition(".")
    found = getattr(getattr(torch.ops.aten, packet, None), which or "default", None)
    return found if isinstance(found, Overload) else None
