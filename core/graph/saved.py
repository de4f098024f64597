"""Passes inputs themselves, in place of views of them, from the forward graph to the backward graph.

A view made by the compiled graph would have to be recreated over its input before autograd can save it and detect later
writes to the input. In the backward graph the same view costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import fx

Graphs = tuple[fx.GraphModule, fx.GraphModule]


def save_inputs_of_views(forward: fx.GraphModule, backward: fx.GraphModule, outputs: int) -> Graphs:
    """Change both graphs in place. `outputs`: the number of the forward graph's results that precede the saved
    tensors."""
    returned = forward.graph.output_node()
    results = list(cast(Sequence[Any], returned.args[0]))
    if any(_is_written(node) for node in forward.graph.find_nodes(op="placeholder")):
        return forward, backward
    # The partitioner uses the same names in both graphs, but orders sizes differently.
    named = {place.name: place for place in backward.graph.find_nodes(op="placeholder")}
    places = {node: named[node.name] for node in results[outputs:] if isinstance(node, fx.Node) and node.name in named}
    first = next(node for node in backward.graph.nodes if node.op != "placeholder")
    for saved, place in list(places.items()):
        chain = _views(saved)
        if not chain:
            continue
        source = chain[0].all_input_nodes[0]
        results[outputs:] = _replaced(results[outputs:], saved, source, drop=source in places)
        if source not in places:
            with backward.graph.inserting_before(place):
                places[source] = backward.graph.placeholder(source.name)
            places[source].meta = dict(source.meta)
        place.replace_all_uses_with(_copied(chain, {source: places[source]}, backward.graph, first))
        backward.graph.erase_node(place)
    returned.args = (tuple(results),)
    forward.graph.eliminate_dead_code()
    for module in (forward, backward):
        module.recompile()
    return forward, backward


def _is_written(place: fx.Node) -> bool:
    return any(
        isinstance(user.target, torch._ops.OpOverload) and user.target._schema.is_mutable for user in place.users
    )


def _views(node: object) -> list[fx.Node]:
    """The operators that compute the node from a placeholder, if all of them are views of fixed sizes; else none."""
    chain: list[fx.Node] = []
    while isinstance(node, fx.Node) and node.op == "call_function":
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or not target.is_view or len(node.all_input_nodes) != 1:
            return []
        if not isinstance(node.meta.get("val"), torch.Tensor):  # one of several results
            return []
        chain.append(node)
        node = node.all_input_nodes[0]
    is_input = isinstance(node, fx.Node) and node.op == "placeholder"
    return chain[::-1] if is_input else []


def _replaced(saved: list[object], old: fx.Node, new: fx.Node, *, drop: bool) -> list[object]:
    return [new if node is old else node for node in saved if node is not old or not drop]


def _copied(chain: list[fx.Node], known: Mapping[fx.Node, fx.Node], graph: fx.Graph, before: fx.Node) -> fx.Node:
    made = dict(known)
    with graph.inserting_before(before):
        for node in chain:
            made[node] = graph.node_copy(node, made.__getitem__)
    return made[chain[-1]]
