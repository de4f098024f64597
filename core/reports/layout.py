"""Positions the nodes of a graph for drawing: in layers from inputs to outputs, with connected nodes close together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armature.reports.record import Graph, Node

SWEEPS = 4  # passes over the layers; each sorts a layer by the neighbours in the layer before it

Positions = dict[str, tuple[float, int]]
"""Of each node: its column, in node widths from the middle, and its layer, the first one is 0."""


def layout(graph: Graph) -> Positions:
    """The positions of all nodes. `graph.nodes` must be in topological order."""
    users = users_of(graph.nodes)
    layers = in_layers(graph.nodes, users)
    rows: dict[int, list[str]] = {}
    for node in graph.nodes:
        rows.setdefault(layers[node.name], []).append(node.name)
    used = {node.name: [name for name in node.inputs if name in layers] for node in graph.nodes}
    ordered = [rows[layer] for layer in sorted(rows)]
    columns: dict[str, float] = {}
    for row in ordered:
        place(row, columns)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in ordered if down else reversed(ordered):
            neighbours = used if down else users
            row.sort(key=lambda name: middle(neighbours[name], columns, columns[name]))
            place(row, columns)
    return {name: (columns[name], layers[name]) for name in layers}


def users_of(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """The users of each node."""
    users: dict[str, list[str]] = {node.name: [] for node in nodes}
    for node in nodes:
        for name in node.inputs:
            if name in users:
                users[name].append(node.name)
    return users


def in_layers(nodes: Sequence[Node], users: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The layer of each node: below all of its inputs, and directly above its nearest user."""
    layers: dict[str, int] = {}
    for node in nodes:
        layers[node.name] = max((layers[name] + 1 for name in node.inputs if name in layers), default=0)
    for node in reversed(nodes):
        if users[node.name]:
            layers[node.name] = min(layers[name] for name in users[node.name]) - 1
    return layers


def place(row: Sequence[str], columns: dict[str, float]) -> None:
    """Place the nodes of a layer side by side, centred."""
    for at, name in enumerate(row):
        columns[name] = at - (len(row) - 1) / 2


def middle(names: Sequence[str], columns: Mapping[str, float], otherwise: float) -> float:
    """The mean column of these nodes."""
    return sum(columns[name] for name in names) / len(names) if names else otherwise
