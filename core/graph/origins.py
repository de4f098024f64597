"""Carries the user's line of each node from the captured graph to the ATen graphs made from it."""

from __future__ import annotations

from typing import Any

from torch import fx

from armature.graph.data import Origin

KEY = "armature_origin"


def mark(captured: fx.GraphModule) -> None:
    """Put each node's `meta["origin"]` where torch's tracing copies it to the nodes made while the node runs."""
    for node in captured.graph.nodes:
        origin = node.meta.get("origin")
        if origin is not None:
            node.meta["custom"] = {**node.meta.get("custom", {}), KEY: origin}


def restore(graph: fx.GraphModule) -> None:
    """Set each operator's `meta["origin"]`: its own, or for a gradient that of the operator it differentiates."""
    by_number: dict[int, Any] = {}
    for node in graph.graph.nodes:
        found = node.meta.get("custom", {}).get(KEY)
        number = node.meta.get("seq_nr")
        if found is not None and number is not None:
            by_number.setdefault(number, found)
        if found is None and number is not None:
            found = by_number.get(number)
        if node.op == "call_function":
            node.meta["origin"] = _origin(str(node.target), found)


def name_operators(graph: fx.GraphModule) -> None:
    """Like `restore`, where each node already has the origin of its captured node: fill in the operator."""
    for node in graph.graph.nodes:
        if node.op == "call_function":
            node.meta["origin"] = _origin(str(node.target), node.meta.get("origin"))


def _origin(op: str, found: Any) -> Origin:
    if found is None:
        return Origin(op)
    return Origin(op, found.file, found.line, getattr(found, "function", ""), getattr(found, "text", ""))
