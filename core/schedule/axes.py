"""Orders a kernel's loops, and merges neighbours: long inner loops over contiguous memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from armature.lower.data import Buffer, IndexValue, Load, Node, Op, Reduce, Scan, Store
from armature.lower.index import Index, Var, floordiv, hint, linear, mod, mul, stride_of, variables


def addresses(nodes: Iterable[Node], stores: Iterable[Store], buffers: Mapping[str, Buffer]) -> list[Index]:
    """Positions in memory that the kernel touches: stores first, then loads, then index expressions used as values."""
    found: dict[Index, None] = {}
    accesses: list[Load | Store] = [*stores]
    nodes = list(nodes)
    accesses += [n for n in nodes if isinstance(n, Load)]
    for access in accesses:
        found[linear(access.index, buffers[access.buffer].strides)] = None
    for node in nodes:
        if isinstance(node, IndexValue):
            found[node.index] = None
    return list(found)


def arrange(variables_: Sequence[Var], places: Sequence[Index]) -> tuple[Var, ...]:
    """The variables from largest to smallest stride; ties keep their order."""
    steps = {v: [stride_of(p, v) for p in places] for v in variables_}
    rank = {v: k for k, v in enumerate(variables_)}

    def compare(a: Var, b: Var) -> int:
        for left, right in zip(steps[a], steps[b], strict=True):
            if left is None or right is None or left == 0 or right == 0:
                continue
            wide, narrow = abs(hint(left)), abs(hint(right))
            if wide != narrow:
                return -1 if wide > narrow else 1
        return rank[a] - rank[b]

    # A comparison over several accesses need not be transitive: insertion still gives a sensible, deterministic order.
    line: list[Var] = []
    for var in variables_:
        place = len(line)
        while place > 0 and compare(var, line[place - 1]) < 0:
            place -= 1
        line.insert(place, var)
    return tuple(line)


def merge(line: Sequence[Var], places: Sequence[Index]) -> tuple[tuple[Var, ...], dict[Var, Index]]:
    """Merge neighbours where every access allows it. Returns the new variables, and the old ones expressed in them."""
    changes: dict[Var, Index] = {}
    runs: list[list[Var]] = []
    for var in line:
        if runs and joins(runs[-1][-1], var, places):
            runs[-1].append(var)
        else:
            runs.append([var])
    out: list[Var] = []
    for run in runs:
        if len(run) == 1:
            out.append(run[0])
            continue
        extent: Index = 1
        for var in run:
            extent = mul(extent, var.extent)
        whole = Var(run[-1].name, extent)
        out.append(whole)
        step: Index = 1
        for var in reversed(run):
            changes[var] = floordiv(whole, step) if var is run[0] else mod(floordiv(whole, step), var.extent)
            step = mul(step, var.extent)
    return tuple(out), changes


def joins(outer: Var, inner: Var, places: Sequence[Index]) -> bool:
    """Whether every access traverses the two loops as it would one."""
    if not isinstance(inner.extent, int) or not isinstance(outer.extent, int):
        return False
    for place in places:
        used = variables(place)
        if outer not in used and inner not in used:
            continue
        big, small = stride_of(place, outer), stride_of(place, inner)
        if big is None or small is None or big != mul(small, inner.extent):
            return False
    return True


def is_order_sensitive(nodes: Iterable[Node]) -> bool:
    """True if a value depends on the order of inner variables: a position or a scan."""
    return any(isinstance(n, Scan) or (isinstance(n, Reduce) and n.op.startswith("arg")) for n in nodes)


def has_product(nodes: Iterable[Node]) -> bool:
    """Whether a product of matrices is among the nodes."""
    return any(isinstance(node, Op) and node.op == "product" for node in nodes)
