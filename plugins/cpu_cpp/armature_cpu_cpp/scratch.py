"""Spills expensive values that several passes need: the first pass stores them in scratch memory, the others load
them."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial

import attrs

from armature.backend_api import (
    OPS,
    Accumulate,
    Guarded,
    Index,
    KernelBody,
    Let,
    Load,
    Node,
    Op,
    PassBody,
    Statement,
    Var,
    Write,
    add,
    mul,
    operands,
    postorder,
    store_roots,
)
from armature_cpu_cpp.loops import Nest

COSTLY = 8  # an operation of this cost is worth a store and a load that stay in the cache
SCRATCH_BYTES = 32 << 10  # for all spilled values of one outer point: about a first-level cache


@attrs.frozen(eq=False)
class ScratchPlan:
    """The printer's instructions: `rows` has the scratch of each spilled node, `first` the pass that fills it."""

    passes: tuple[PassBody, ...]
    rows: Mapping[Node, Row]
    first: Mapping[Node, int]


@attrs.frozen
class Row:
    """The scratch of one value: its name, its number of elements (of `lanes` values each if lanes are outer points),
    and the element for the inner loops' point. Loops in which the value is invariant don't count, because it is
    computed outside of them."""

    name: str
    length: int
    position: Index


def _costly(step: PassBody, body: KernelBody, inner: frozenset[object]) -> list[Node]:
    found: list[Node] = []
    for statement in step.inside:
        node = statement.node if isinstance(statement, Let) else None
        if isinstance(node, Op) and OPS[node.op].cost >= COSTLY and body.depends[node] & inner:
            found.append(node)
    return found


def _roots(statements: Iterable[Statement]) -> list[Node]:
    out: list[Node] = []
    for statement in statements:
        if isinstance(statement, Accumulate):
            out.append(statement.node.value)
        elif isinstance(statement, Write):
            out += store_roots(statement.store)
    return out


def _operands_but(known: Container[Node], node: Node) -> tuple[Node, ...]:
    return () if node in known else operands(node)


def _only(statements: Sequence[Statement], needed: frozenset[Node]) -> tuple[Statement, ...]:
    return tuple(s for s in statements if not isinstance(s, (Let, Guarded)) or s.node in needed)


def _row(name: str, loops: Mapping[Var, int]) -> Row:
    """The scratch of a value that varies with these loops, with their extents."""
    position: Index = 0
    for var, extent in loops.items():
        position = add(mul(position, extent), var)
    return Row(name, math.prod(loops.values()), position)


def plan_scratch(body: KernelBody, nest: Nest) -> ScratchPlan:
    """Choose the values to spill, and drop nodes from later passes that only these values needed."""
    nothing = ScratchPlan(body.passes, {}, {})
    extents = {var: var.extent for var in nest.inner if isinstance(var.extent, int)}
    symbolic = len(extents) < len(nest.inner)
    if symbolic or len(body.passes) < 2 or nest.split in nest.inner or not nest.inner:
        return nothing
    inner: frozenset[object] = frozenset(nest.inner)
    first: dict[Node, int] = {}
    used: dict[Node, None] = {}
    passes: list[PassBody] = []
    for number, step in enumerate(body.passes):
        # A value computed from a buffer that the kernel writes may differ between passes.
        stable = [n for n in _costly(step, body, inner) if not _reads(n, body.kernel.writes)]
        known = {n for n in stable if first.get(n, number) < number}
        reached = postorder(_roots(step.inside), partial(_operands_but, known))
        used.update(dict.fromkeys(n for n in reached if n in known))
        passes.append(attrs.evolve(step, inside=_only(step.inside, frozenset(reached))))
        for node in stable:
            first.setdefault(node, number)
    rows = {
        node: _row(f"{body.names[node]}_row", {v: k for v, k in extents.items() if v in body.depends[node]})
        for node in used
    }
    lanes = 1 if nest.vector in nest.inner else nest.lanes
    if not rows or lanes * sum(row.length * n.dtype.itemsize for n, row in rows.items()) > SCRATCH_BYTES:
        return nothing
    return ScratchPlan(tuple(passes), rows, {n: first[n] for n in rows})


def _reads(node: Node, buffers: Sequence[str]) -> bool:
    return any(isinstance(n, Load) and n.buffer in buffers for n in postorder([node]))
