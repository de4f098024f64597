"""Value ranges of integers: conditions that always hold, or never, go away, and so do checks of indices in bounds.

Positions, masks and what is computed of them are known within limits: `arange(n) >= 0`, the mask of a padding of width
zero, the position of a maximum as an index. Done once producers have been copied into their readers, where it shows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TypeAlias

import attrs
import torch

from armature.lower.data import Const, ExternCall, IndexValue, Load, Masked, Node, Op, Reduce, Scan
from armature.lower.index import Index, Var, bounds, numel, substitute
from armature.schedule.dependencies import Dependencies, Unit
from armature.schedule.normalise import Item
from armature.schedule.walk import rename_store, with_operands

Range: TypeAlias = tuple[float, float]
"""Smallest and largest value, both inclusive: integers, or ANY."""

ANY: Range = (-inf, inf)


def simplified(units: Sequence[Unit], deps: Dependencies) -> list[Unit]:
    """The units without conditions and checks whose outcome is known. `deps` was computed for `units`."""
    held: dict[str, Range] = {}  # of buffers that are written once, as a whole
    out: list[Unit] = []
    for unit in units:
        if not isinstance(unit, ExternCall):
            unit, ranges = simplified_item(unit, held)
            for store in unit.stores:
                name = store.buffer
                if unit.plain and len(deps.writers[name]) == 1 and name not in deps.changed:
                    held[name] = ranges[store.value]
        out.append(unit)
    return out


def simplified_item(item: Item, held: Mapping[str, Range]) -> tuple[Item, Mapping[Node, Range]]:
    """The item, the same object if nothing is known beforehand, and the ranges of its nodes. held: those of buffers."""
    ranges: dict[Node, Range] = {}
    table: dict[Node, Node] = {}
    for old in item.order:
        node = shorter(with_operands(old, table), ranges)
        if node not in ranges:
            ranges[node] = range_of(node, ranges, held)
        least, most = ranges[node]
        if least == most and can_be_literal(node):
            node = Const(bool(least) if node.dtype == torch.bool else int(least), node.dtype)
            ranges[node] = (least, most)
        table[old] = node
    if all(old is new for old, new in table.items()):
        return item, ranges
    found = item.with_stores(rename_store(store, {}, table) for store in item.stores)
    # The loop nest was made for these, so they stay, even if nothing needs them.
    if sum(map(is_combined, found.order)) != sum(map(is_combined, item.order)):
        return item, {old: ranges[new] for old, new in table.items()}
    return found, ranges


def is_combined(node: Node) -> bool:
    """Whether it combines values of several points."""
    return isinstance(node, (Reduce, Scan))


def can_be_literal(node: Node) -> bool:
    """Whether a node of one value may be replaced by it. The check of an index raises, so it is not."""
    return isinstance(node, Load) or (isinstance(node, Op) and node.op != "check_index")


def is_integer(dtype: torch.dtype) -> bool:
    """Whether ranges are known for values of a dtype."""
    return not dtype.is_floating_point and not dtype.is_complex


def limits(dtype: torch.dtype) -> Range:
    """What a dtype can hold."""
    if dtype == torch.bool:
        return (0, 1)
    info = torch.iinfo(dtype)
    return (info.min, info.max)


def range_of(node: Node, ranges: Mapping[Node, Range], held: Mapping[str, Range]) -> Range:
    """The range of a node, given those of its operands and of buffers."""
    if not is_integer(node.dtype):
        return ANY
    found, (least, most) = _range(node, ranges, held), limits(node.dtype)
    return found if least <= found[0] and found[1] <= most else (least, most)  # what does not fit wraps around


def _range(node: Node, ranges: Mapping[Node, Range], held: Mapping[str, Range]) -> Range:
    if isinstance(node, Const):
        return (node.value, node.value)
    if isinstance(node, IndexValue):
        return of_index(node.index)
    if isinstance(node, Load):
        return held.get(node.buffer, ANY)
    if isinstance(node, Masked):
        return either(ranges[node.value], (node.other.value, node.other.value))
    if isinstance(node, Reduce) and node.op in ("argmax", "argmin"):
        return (0, of_index(numel(var.extent for var in node.over))[1] - 1)
    if isinstance(node, (Reduce, Scan)):
        return ranges[node.value] if node.op in ("max", "min", "any", "all") else ANY
    return RESULTS[node.op](*(ranges[arg] for arg in node.args)) if node.op in RESULTS else ANY


def of_index(index: Index) -> Range:
    """The range of an index expression, which is computed in 64 bits."""
    (low, high), (least, most) = bounds(index), limits(torch.int64)
    return (least if low is None else low, most if high is None else high)


def either(one: Range, other: Range) -> Range:
    """The range of a value of one or the other."""
    return (min(one[0], other[0]), max(one[1], other[1]))


def products(one: Range, other: Range) -> Range:
    """The range of a product."""
    ends = [a * b for a in one for b in other]
    return (min(ends), max(ends))


def remainders(one: Range, other: Range) -> Range:
    """The range of a remainder, which has the sign of the divisor."""
    return (0, other[1] - 1) if other[0] > 0 else ANY


def quotients(one: Range, other: Range) -> Range:
    """The range of a quotient that is rounded down, for a positive divisor."""
    ends = [a // b for a in one for b in other] if other[0] > 0 else ANY
    return (min(ends), max(ends))


def distances(one: Range) -> Range:
    """The range of an absolute value."""
    return (0 if one[0] < 0 < one[1] else min(map(abs, one)), max(map(abs, one)))


RESULTS: Mapping[str, Callable[..., Range]] = {
    "cast": lambda one: one,
    "add": lambda one, other: (one[0] + other[0], one[1] + other[1]),
    "sub": lambda one, other: (one[0] - other[1], one[1] - other[0]),
    "mul": products,
    "neg": lambda one: (-one[1], -one[0]),
    "abs": distances,
    "maximum": lambda one, other: (max(one[0], other[0]), max(one[1], other[1])),
    "minimum": lambda one, other: (min(one[0], other[0]), min(one[1], other[1])),
    "mod": remainders,
    "floordiv": quotients,
    "where": lambda condition, one, other: either(one, other),
}
COMPARED: Mapping[str, Callable[[float, float], bool]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def outcome(op: str, one: Range, other: Range) -> bool | None:
    """The outcome of a comparison; None where it depends on the values."""
    if op in COMPARED:
        found = {COMPARED[op](a, b) for a, b in ((one[0], other[1]), (one[1], other[0]))}
        return found.pop() if len(found) == 1 else None
    if one[1] < other[0] or other[1] < one[0]:
        return op == "ne"
    return op == "eq" if one == other and one[0] == one[1] else None


def shorter(node: Node, ranges: Mapping[Node, Range]) -> Node:
    """What has the same value as the node and is less to compute; its operands are as short as they get."""
    if isinstance(node, Load):
        return directly(node)
    if isinstance(node, Masked) and isinstance(node.cond, Const):
        return node.value if node.cond.value else node.other
    if not isinstance(node, Op):
        return node
    args = node.args
    if (node.op in COMPARED or node.op in ("eq", "ne")) and all(is_integer(arg.dtype) for arg in args):
        known = outcome(node.op, ranges[args[0]], ranges[args[1]])
        return node if known is None else Const(known, torch.bool)
    if node.op in LOGIC and all(arg.dtype == torch.bool for arg in args):
        return LOGIC[node.op](node)
    if node.op == "where" and isinstance(args[0], Const):
        chosen = args[1] if args[0].value else args[2]
        return chosen if chosen.dtype == node.dtype else node
    if node.op in ("maximum", "minimum") and is_integer(node.dtype):
        larger, smaller = args if ranges[args[0]][0] >= ranges[args[1]][1] else args[::-1]
        if ranges[larger][0] >= ranges[smaller][1]:
            return larger if node.op == "maximum" else smaller
    if node.op == "check_index" and ranges[args[0]][0] >= 0 and ranges[args[0]][1] < ranges[args[1]][0]:
        return args[0]
    return node


def conjunction(node: Op) -> Node:
    """A conjunction without operands that are known."""
    if falses := [arg for arg in node.args if isinstance(arg, Const) and not arg.value]:
        return falses[0]
    left = [arg for arg in node.args if not isinstance(arg, Const)]
    return node if len(left) == 2 else (left or node.args)[0]


def disjunction(node: Op) -> Node:
    """A disjunction without operands that are known."""
    if trues := [arg for arg in node.args if isinstance(arg, Const) and arg.value]:
        return trues[0]
    left = [arg for arg in node.args if not isinstance(arg, Const)]
    return node if len(left) == 2 else (left or node.args)[0]


def negation(node: Op) -> Node:
    """A negation, computed if it is one of a constant."""
    (arg,) = node.args
    return Const(not arg.value, torch.bool) if isinstance(arg, Const) else node


LOGIC: Mapping[str, Callable[[Op], Node]] = {
    "logical_and": conjunction, "logical_or": disjunction, "logical_not": negation,
}  # fmt: skip


def directly(load: Load) -> Load:
    """A load with computed positions that are index expressions written as such."""
    plain: dict[Var, Index] = {
        var: node.index for var, node in load.indirect if isinstance(node, IndexValue) and node.dtype == torch.int64
    }
    if not plain:
        return load
    index = tuple(substitute(part, plain) for part in load.index)
    return attrs.evolve(load, index=index, indirect=tuple(pair for pair in load.indirect if pair[0] not in plain))
