"""What is known of an operator: by its schema, and by the rows of plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import torch

from armature.torch_abi.fake_rules import AxesOfOne, FakeResult, FakeRules
from armature.torch_abi.probes import Probed


@attrs.frozen
class Operator:
    """Facts about an operator that neither its schema nor torch's meta kernel states.

    function: an equivalent of the operator that is faster to call. reliable_strides: the results always have the
    strides of the meta kernel; other operators' results are checked each time the operator has run.
    relaid: `relaid(args, result)`, called on fake tensors while code is traced; returns the result with the strides
    that the operator's real kernels produce, if the meta kernel's are wrong. takes: `takes(args)`, whether the kernels
    accept arguments of these dtypes and sizes, if the meta kernel accepts more; probed: how the kernel of a CPU is
    asked that. understood: `understood(args)`, the same arguments in a form for which the meta kernel's answer is
    right. fake: why the operator has no fake result, though it has a meta kernel. axes_of_one: what the strides of the
    results are along axes of size 1, unless that follows from `relaid` and torch's tags. writes: `writes(args)`, the
    positions of the arguments that a call writes to, if the schema does not say.

    What the results are: unset: whatever the memory held. may_return_view: views, though the schema does not say so.
    changes_part: the first argument with other numbers in part of it. layout_only: something that the first argument
    gives its layout alone. commutes: the same whichever of the two operands is the first.
    """

    op: torch._ops.OpOverload
    function: Callable[..., Any] | None = None
    reliable_strides: bool = False
    relaid: Callable[[Sequence[Any], Any], Any] | None = None
    takes: Callable[[Sequence[Any]], bool] | None = None
    understood: Callable[[Sequence[Any]], Sequence[Any]] | None = None
    probed: Probed | None = None
    fake: FakeResult | None = None
    axes_of_one: AxesOfOne | None = None
    writes: Callable[[Sequence[Any]], Iterable[int]] | None = None
    unset: bool = False
    may_return_view: bool = False
    changes_part: bool = False
    layout_only: bool = False
    commutes: bool = False
    priority: int = 0


def fake_rules(rows: Iterable[Operator]) -> FakeRules:
    """What rows tell of fakes; of several for one operator, the first that tells it decides."""
    rows = tuple(rows)

    def told(field: str) -> dict[Any, Any]:
        return {row.op: getattr(row, field) for row in reversed(rows) if getattr(row, field) is not None}

    return FakeRules(*map(told, ("relaid", "takes", "understood", "axes_of_one", "fake", "probed", "writes")))


Rows: TypeAlias = Mapping[Any, Operator]


def may_write(op: torch._ops.OpOverload, rows: Rows) -> bool:
    """Whether an operator may write to an argument."""
    row = rows.get(op)
    return op._schema.is_mutable or (row is not None and row.writes is not None)


def may_return_view(op: object, rows: Rows) -> bool:
    """Whether a result may share memory with an argument."""
    row, schema = rows.get(op), getattr(op, "_schema", None)
    if row is not None and row.may_return_view:
        return True
    return schema is not None and any(result.alias_info is not None for result in schema.returns)


def commuting(rows: Rows) -> frozenset[object]:
    """The functions of two operands of which either may be the first: operators, and torch's functions of that name."""
    found = [op for op, row in rows.items() if row.commutes]
    return frozenset((*found, *(getattr(torch, op._opname, op) for op in found)))
