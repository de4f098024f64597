"""How the wrapper calls operators that remain ATen calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from armature.graph.facts import Operator
from armature.torch_abi.operators import direct

Operators = Mapping[torch._ops.OpOverload, Operator]


def may_differ_in_layout(target: torch._ops.OpOverload, operators: Operators) -> bool:
    """Whether an operator's results may have another layout than torch's meta kernel says, so that it is checked at run
    time."""
    return target not in operators or not operators[target].reliable_strides


def binding_of(target: torch._ops.OpOverload, operators: Operators) -> Callable[..., Any]:
    """The callable for an operator: the fastest equivalent that a plugin declares."""
    return (operators[target].function if target in operators else None) or direct(target)


def binding_name(target: torch._ops.OpOverload) -> str:
    """A readable global name for it: `aten_mm`, `aten_add_Tensor`."""
    namespace, _, name = target._schema.name.partition("::")
    overload = f"_{target._overloadname}" if target._overloadname != "default" else ""
    return f"{namespace}_{name}{overload}"
