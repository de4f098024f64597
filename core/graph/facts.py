"""Facts about operators, from their schemas and from plugins' rows."""

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
    strides of the meta kernel; other operators' results are checked each time the operator has run. relaid:
    `relaid(args, result)`, called on fake tensors while code is traced; returns the result with the strides that the
    operator's real kernels produce, if the meta kernel's are wrong. takes: `takes(args)`, whether the kernels accept
    arguments of these dtypes and sizes, if the meta kernel accepts more. probed: how to find that out from the CPU
    kernel. understood: `understood(args)`, the same arguments in a form for which the meta kernel's result is right.
    fake: why calls of the operator get no fake result, although it has a meta kernel. axes_of_one: the results'
    strides along axes of size 1, unless `relaid` and torch's tags determine them. writes: `writes(args)`, the
    positions of the arguments that a call writes to, if the schema does not say. library: what it is that a library
    computes better than loops, for reports; "": it stays a call for other reasons, or is none. workspace:
    `workspace(args, result)` of fakes, the bytes that a call takes while it runs, besides arguments and results.

    Flags about the results. unset: they are uninitialised memory. may_return_view: they may be views, though the
    schema does not say so. changes_part: the result is a copy of the first argument with part of its elements
    changed. layout_only: of the first argument, only the layout is used. commutes: the two operands may be exchanged.
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
    library: str = ""
    workspace: Callable[[Sequence[Any], Any], int] | None = None
    unset: bool = False
    may_return_view: bool = False
    changes_part: bool = False
    layout_only: bool = False
    commutes: bool = False
    priority: int = 0


def fake_rules(rows: Iterable[Operator]) -> FakeRules:
    """Collect the rows' facts about fake results. If several rows state the same fact about an operator, the first one
    counts."""
    rows = tuple(rows)

    def by_operator(field: str) -> dict[Any, Any]:
        return {row.op: getattr(row, field) for row in reversed(rows) if getattr(row, field) is not None}

    return FakeRules(*map(by_operator, ("relaid", "takes", "understood", "axes_of_one", "fake", "probed", "writes")))


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
    """The functions whose two operands may be exchanged: operators, and torch's functions of the same names."""
    found = [op for op, row in rows.items() if row.commutes]
    return frozenset((*found, *(getattr(torch, op._opname, op) for op in found)))
