"""How the wrapper calls operators that stay ATen calls: the shortest public way to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from armature.torch_abi.operators import direct

aten = torch.ops.aten

# The same operators with the same arguments: `torch` parses them in C, an OpOverload takes about 1 us longer. An
# operator that takes lists with None in them (`Tensor?[]`) has no place here: the functions refuse those.
BINDINGS: Mapping[object, Callable[..., Any]] = MappingProxyType(
    {
        aten.mm.default: torch.mm,
        aten.bmm.default: torch.bmm,
        aten.addmm.default: torch.addmm,
        aten.baddbmm.default: torch.baddbmm,
        aten.mv.default: torch.mv,
        aten.convolution.default: torch.convolution,
        aten.index_select.default: torch.index_select,
        aten.gather.default: torch.gather,
        aten.scatter_add.default: torch.scatter_add,
        aten.index_add.default: torch.index_add,
        aten.cumsum.default: torch.cumsum,
        aten.native_batch_norm.default: torch.native_batch_norm,
        aten.native_layer_norm.default: torch.native_layer_norm,
    }
)
# Everybody relies on how their results lie in memory.
LAID_OUT_AS_TOLD = frozenset((*BINDINGS, aten.index_put.default))


def may_differ_in_layout(target: torch._ops.OpOverload) -> bool:
    """Whether an operator's results may lie otherwise than torch says of tensors without numbers: this is looked at
    when it has run."""
    return target not in LAID_OUT_AS_TOLD


def binding_of(target: torch._ops.OpOverload) -> Callable[..., Any]:
    """What to call for an operator."""
    return BINDINGS.get(target) or direct(target)


def binding_name(target: torch._ops.OpOverload) -> str:
    """A readable global name for it: `aten_mm`, `aten_add_Tensor`."""
    namespace, _, name = target._schema.name.partition("::")
    overload = f"_{target._overloadname}" if target._overloadname != "default" else ""
    return f"{namespace}_{name}{overload}"
