"""A graph of numbers as expressions: what a back end computes where an operator calls a function for each element."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs
import torch

from armature.graph.data import AtenGraph
from armature.lower.data import Buffer, Const, IndexValue, Load, Loop, Node, Op, View
from armature.lower.index import bounds
from armature.lower.lower import lower
from armature.schedule.walk import rebuild, store_roots

if TYPE_CHECKING:
    from armature.context import CompileContext


@attrs.frozen(eq=False)
class Expression:
    """Values, and what they load from: the position among the graph's inputs of each tensor, by its name."""

    values: tuple[Node, ...]
    buffers: Mapping[str, Buffer]
    positions: Mapping[str, int]


def expression(aten: AtenGraph, given: Mapping[int, Node], ctx: CompileContext) -> Expression | None:
    """The results of a graph that returns numbers, as expressions.

    given: the nodes for inputs that are numbers, by position; the other inputs are tensors to load from. None if an
    operator has no loops, or makes a tensor of more than one element.
    """
    loops = lower(aten, ctx)
    values = {name: given[position] for position, name in enumerate(loops.inputs) if position in given}

    def change(node: Node) -> Node:
        if isinstance(node, Load) and node.buffer in values:
            return values[node.buffer]
        if isinstance(node, Op) and is_checked(node):
            return node.args[0]
        return node.args[2] if isinstance(node, Op) and is_from_front(node) else node

    for loop in loops.nodes:
        if not isinstance(loop, Loop) or loop.space or len(loop.stores) != 1:
            return None
        (store,) = loop.stores
        values[store.buffer] = rebuild(store_roots(store), change)[store.value]
    views = [result for result in loops.outputs if isinstance(result, View) and result.buffer in values]
    if loops.constants or loops.sizes or len(views) < len(loops.outputs):
        return None
    positions = {name: at for at, name in enumerate(loops.inputs) if at not in given}
    return Expression(
        tuple(values[view.buffer] for view in views), {name: loops.buffers[name] for name in positions}, positions
    )


def is_checked(node: Op) -> bool:
    """Whether the node is an index check that can never fail."""
    if node.op != "check_index":
        return False
    index, size = uncast(node.args[0]), node.args[1]
    if not isinstance(index, IndexValue) or not isinstance(size, Const):
        return False
    low, high = bounds(index.index)
    return low is not None and low >= 0 and high is not None and high < size.value


def is_from_front(node: Op) -> bool:
    """Whether the node counts a position from the end if it is negative, which it never is."""
    if node.op != "where" or not isinstance(negative := node.args[0], Op) or negative.op != "lt":
        return False
    index, limit = uncast(negative.args[0]), negative.args[1]
    if not isinstance(index, IndexValue) or not isinstance(limit, Const):
        return False
    low, _ = bounds(index.index)
    return low is not None and low >= limit.value


def uncast(node: Node) -> Node:
    """The node below conversions between integers."""
    while isinstance(node, Op) and node.op == "cast" and node.args[0].dtype in (torch.int32, torch.int64):
        (node,) = node.args
    return node
