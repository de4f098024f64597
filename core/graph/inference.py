"""Graphs that enter inference mode: a functional graph is equivalent if the whole graph runs inside the mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from armature.torch_abi import pytree
from armature.torch_abi.grad_modes import enter_inference, exit_inference


def enters(module: fx.GraphModule) -> bool:
    """Whether the graph enters inference mode, or leaves one that was entered outside."""
    return any(node.target is enter_inference for node in module.graph.nodes)


def without(module: fx.GraphModule) -> fx.GraphModule | None:
    """The graph without its switches of inference mode, to be run inside the mode, if all of its calls are inside; else
    None.

    Tensors made outside would be of another kind.
    """
    called = [node for node in module.graph.nodes if node.op.startswith("call_")]
    switches = [node for node in called if node.target in (enter_inference, exit_inference)]
    if len(switches) != 2 or [called[0], called[-1]] != switches or switches[0].args != (True,):
        return None
    copy = fx.Graph()
    kept: dict[fx.Node, Any] = {}
    for node in module.graph.nodes:
        if node not in switches:
            kept[node] = copy.node_copy(node, kept.__getitem__)
    return fx.GraphModule(module, copy, type(module).__name__)


def returns_other_kinds(module: fx.GraphModule) -> bool:
    """Whether the graph returns tensors that the current mode would not make: views of tensors made in another mode."""
    made = [node.meta.get("example_value") for node in module.graph.output_node().all_input_nodes]
    values = pytree.tree_leaves(made)
    mode = torch.is_inference_mode_enabled()
    return any(isinstance(value, torch.Tensor) and value.is_inference() != mode for value in values)


def inside(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a callable to run in inference mode."""

    def in_inference_mode(*args: Any) -> Any:
        with torch.inference_mode():
            return run(*args)

    return in_inference_mode
