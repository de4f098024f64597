"""Graphs that record gradients in one part only, and are called under no_grad.

AOTAutograd decides once for a whole graph, by the grad mode in which it is called. So such a graph is compiled and run
with gradients enabled, and disables them itself at its start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from armature.torch_abi.grad_modes import set_grad_enabled
from armature.torch_abi.pytree import tree_leaves


def records_gradients_inside(module: fx.GraphModule) -> bool:
    """Whether the graph returns results with gradients although gradients are disabled in the current mode."""
    if torch.is_grad_enabled() or not any(_switches_on(node) for node in module.graph.nodes):
        return False
    made = tree_leaves([node.meta.get("example_value") for node in module.graph.output_node().all_input_nodes])
    return any(isinstance(value, torch.Tensor) and value.requires_grad for value in made)


def _switches_on(node: fx.Node) -> bool:
    return node.target is set_grad_enabled and node.args == (True,)


def enabling_gradients(module: fx.GraphModule) -> fx.GraphModule:
    """The same graph, to be called with gradients enabled."""
    graph = fx.Graph()
    kept: dict[fx.Node, Any] = {}
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    for place in places:
        kept[place] = graph.node_copy(place, kept.__getitem__)
    called = [node for node in module.graph.nodes if node.op not in ("placeholder", "output")]
    _switch(graph, called[0], False)
    for node in called:
        kept[node] = graph.node_copy(node, kept.__getitem__)
    _switch(graph, called[-1], True)
    graph.node_copy(module.graph.output_node(), kept.__getitem__)
    return fx.GraphModule(module, graph, type(module).__name__)


def _switch(graph: fx.Graph, beside: fx.Node, enabled: bool) -> None:
    made = graph.call_function(set_grad_enabled, (enabled,))
    made.meta.update({name: beside.meta[name] for name in ("origin", "stack_trace")}, changes_state=True)


def with_gradients(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a callable to run with gradients enabled."""

    def recording(*args: Any) -> Any:
        with torch.enable_grad():
            return run(*args)

    return recording
