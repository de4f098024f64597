"""What a norm reads is not saved for its backward where that can compute it from values that are saved anyway."""

from __future__ import annotations

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from armature_aten_lowerings.layouts import args_of, is_view
from armature_aten_lowerings.saving import (
    OF_NORMS,
    depending_on_tangents,
    has_numbers,
    is_elementwise,
    readers_in,
    reads_elements,
)

aten = torch.ops.aten
LONGEST = 8  # operators that backward computes again for one norm


def recompute_normed(module: object, ctx: object) -> object:
    """Recompute an elementwise argument of a norm in backward, as a sum of an activation and positions: backward of the
    activation needs the activation's argument anyway, and what else it takes is much smaller."""
    if not isinstance(module, fx.GraphModule):
        return module
    backward = depending_on_tangents(module.graph)
    for node in module.graph.nodes:
        place = OF_NORMS.get(node.target)
        if place is None:
            continue
        value = args_of(node)[place]
        if value in backward or is_returned(value) or "recompute" in value.meta:
            continue
        if all(reads_elements(reader, value) for reader in readers_in(backward, value)):
            for computed in steps_to(value, backward):
                computed.meta["recompute"] = CheckpointPolicy.PREFER_RECOMPUTE
    return module


def steps_to(value: fx.Node, backward: set[fx.Node]) -> set[fx.Node]:
    """The elementwise operators and views that compute a value from others, of which at most half of its bytes are not
    in memory anyway when backward runs. Empty if there are none, or too many."""
    steps, sources, todo = set[fx.Node](), set[fx.Node](), [value]
    while todo:
        node = todo.pop()
        if (node is not value and is_held(node, backward)) or not (is_elementwise(node) or is_view(node)):
            sources.add(node)
        elif node not in steps:
            steps.add(node)
            todo += node.all_input_nodes
    more = [source for source in sources if not is_held(source, backward)]
    if len(steps) > LONGEST or not all(map(has_numbers, (value, *sources))):
        return set()
    if any(user.target is aten.copy_.default for source in sources for user in source.users):
        return set()  # backward would read what is written there later
    return steps if 2 * sum(source.meta["val"].nbytes for source in more) <= value.meta["val"].nbytes else set()


def is_held(node: fx.Node, backward: set[fx.Node]) -> bool:
    """Whether a value is in memory until backward in any case."""
    return node.op == "placeholder" or is_returned(node) or bool(readers_in(backward, node))


def is_returned(node: fx.Node) -> bool:
    """Whether the value is a result of the graph."""
    return any(user.op == "output" for user in node.users)
