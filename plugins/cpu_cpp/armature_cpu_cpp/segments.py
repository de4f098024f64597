"""Conditions on the vector's variable: the loop is split where they change, so that each piece has no condition at all.

A concatenation along the last axis, or padding, compares the loop's variable with constants. In between, the answer is
the same for all lanes, so a piece is printed with the answer instead of the comparison.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import attrs

from armature.backend_api import Const, IndexValue, Node, Op, Var, sub

MOST = 6  # each piece is a copy of the body


@attrs.frozen
class Segment:
    """Points `begin`..`end`-1 of the variable, the answers of conditions there, and values that are the same for all
    lanes because they only depend on these conditions."""

    begin: int
    end: int
    conditions: Mapping[Node, bool]
    uniform: frozenset[Node] = frozenset()


# The first point at which a comparison of the variable with a limit changes its answer.
EDGE: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {"lt": lambda k: k, "ge": lambda k: k, "le": lambda k: k + 1, "gt": lambda k: k + 1}
)
BELOW = frozenset(("lt", "le"))


def edge_of(node: Node, var: Var) -> int | None:
    """The point where the node changes its answer along the variable; None if it is not such a comparison."""
    if not isinstance(node, Op) or node.op not in EDGE:
        return None
    left, right = node.args
    if not isinstance(left, IndexValue) or not isinstance(right, Const) or left.dtype.is_floating_point:
        return None
    offset = sub(left.index, var)
    return EDGE[node.op](int(right.value) - offset) if isinstance(offset, int) else None


def _decide(node: Op, known: Mapping[Node, bool]) -> bool | None:
    """The result of a logical operation, if its known operands determine it."""
    values = [bool(a.value) if isinstance(a, Const) else known.get(a) for a in node.args]
    if node.op == "logical_not" and values[0] is not None:
        return not values[0]
    if node.op in ("logical_and", "bit_and"):
        return False if False in values else True if None not in values else None
    if node.op in ("logical_or", "bit_or"):
        return True if True in values else False if None not in values else None
    return None


def _around_the_widest(points: Sequence[int], extent: int, lanes: int) -> list[int]:
    """The ends of the widest piece, if it is much wider than a vector: windows have many conditions near the borders of
    an image, and none in between."""
    begin, end = max(itertools.pairwise([0, *points, extent]), key=lambda piece: piece[1] - piece[0])
    return [p for p in (begin, end) if 0 < p < extent] if end - begin >= 2 * lanes else []


def cut(nodes: Iterable[Node], var: Var, extent: int, lanes: int, varies: Callable[[Node], bool]) -> list[Segment]:
    """The pieces of the loop over `var`; a single piece without known conditions if nothing is gained.

    `nodes` has operands before users; `varies` tells which of them differ between lanes.
    """
    order = list(nodes)
    edges = {n: edge for n in order if (edge := edge_of(n, var)) is not None}
    points = sorted({e for e in edges.values() if 0 < e < extent})
    if len(points) >= MOST:
        points = _around_the_widest(points, extent, lanes)
        if not points:
            return [Segment(0, extent, {})]
    if not edges:
        return [Segment(0, extent, {})]
    pieces: list[Segment] = []
    for begin, end in zip([0, *points], [*points, extent]):
        known: dict[Node, bool] = {
            n: (begin < edge) == (n.op in BELOW)
            for n, edge in edges.items()
            if isinstance(n, Op) and not begin < edge < end
        }
        for node in order:
            if isinstance(node, Op) and (answer := _decide(node, known)) is not None:
                known[node] = answer
        uniform: set[Node] = set()
        for node in order:
            if isinstance(node, Op) and all(a in known or a in uniform or not varies(a) for a in node.args):
                uniform.add(node)
        pieces.append(Segment(begin, end, known, frozenset(uniform)))
    return pieces
