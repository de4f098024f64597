"""Transformations of the captured graph that are only valid because of what tinyframe guarantees."""

from __future__ import annotations

import torch.fx
from tinyframe import operations

from armature.plugin_api import Pass


def is_finite(node: object) -> bool:
    """Whether a node of the graph is a call of `finite`."""
    return isinstance(node, torch.fx.Node) and node.op == "call_function" and node.target is operations.finite


def same_limit(first: torch.fx.Node, second: torch.fx.Node) -> bool:
    """Whether two calls of `finite` differ only in the column."""
    return (first.args[1:], first.kwargs) == (second.args[1:], second.kwargs)


def merge_finite(module: torch.fx.GraphModule, ctx: object) -> torch.fx.GraphModule:
    """`finite(finite(x))` with the same limit is `finite(x)`, because finite values do not change."""
    for node in list(module.graph.nodes):
        inner = node.args[0] if is_finite(node) else None
        if isinstance(inner, torch.fx.Node) and is_finite(inner) and same_limit(node, inner):
            node.replace_all_uses_with(inner)
            module.graph.erase_node(node)
    module.recompile()
    return module


PASSES = [Pass("tinyframe-merge-finite", "pre_grad", merge_finite)]
