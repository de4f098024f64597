"""torch_geometric: its convolutions, aggregations, norms, poolings and models, built and called by their signatures."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from benchmarks.zoo.case import Build, Case, Library

NODES, EDGES, WIDTH = 12, 40, 8
KINDS = ("conv", "aggr", "norm", "pool", "models", "dense", "unpool", "kge")
# Constructor arguments by name, each a function that makes the value for a model.
MADE: dict[str, Callable[[], Any]] = {
    "nn": lambda: mlp(WIDTH),
    "local_nn": lambda: None,
    "global_nn": lambda: None,
    "mlp": lambda: mlp(WIDTH),
    "conv": lambda: convolution("GCNConv"),
    "gnn": lambda: convolution("GCNConv"),
    "encoder": lambda: convolution("GCNConv"),
    "gate_nn": lambda: nn.Linear(WIDTH, 1),
    "aggrs": lambda: ["mean", "max", "std"],
    "aggr": lambda: "mean",
    "mode": lambda: "cat",
    "act": lambda: nn.ReLU(),
    "deg": lambda: torch.tensor([0, 2, 4, 4, 2]),
    "aggregators": lambda: ["mean", "max"],
    "scalers": lambda: ["identity", "amplification"],
    "metadata": lambda: (["a"], [("a", "to", "a")]),
}
NUMBERS: dict[str, Any] = {
    "in_channels": WIDTH,
    "out_channels": WIDTH,
    "hidden_channels": WIDTH,
    "channels": WIDTH,
    "dim": 2,
    "edge_dim": None,
    "num_layers": 2,
    "num_blocks": 2,
    "heads": 2,
    "num_heads": 2,
    "num_relations": 3,
    "num_bases": 2,
    "kernel_size": 3,
    "K": 2,
    "k": 3,
    "ratio": 0.5,
    "num_nodes": NODES,
    "num_node_types": 2,
    "num_edge_types": 3,
    "num_groups": 2,
    "num_clusters": 4,
    "embedding_dim": WIDTH,
    "hidden_dim": WIDTH,
    "num_features": WIDTH,
    "depth": 2,
    "learn": True,
    "max_num_elements": NODES,
    "dim_size": 2,
    "processing_steps": 2,
    "num_seed_points": 2,
    "num_timesteps": 2,
    "shortest_path": 2,
    "pool_ratios": 0.5,
    "size": 2,
    "num_filters": WIDTH,
    "nhead": 2,
    "alpha": 0.1,
    "theta": 0.5,
    "layer": 1,
    "max_steps": 3,
}


def mlp(width: int) -> nn.Sequential:
    """Two layers."""
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


def convolution(name: str) -> nn.Module:
    """A convolution of the library."""
    import torch_geometric.nn as lib  # noqa: PLC0415

    made: nn.Module = getattr(lib, name)(WIDTH, WIDTH)
    return made


def graph() -> dict[str, Any]:
    """Arguments of `forward` by name: two small graphs in a batch."""
    first = torch.randint(0, NODES // 2, (2, EDGES // 2))
    edges = torch.cat([first, torch.randint(NODES // 2, NODES, (2, EDGES // 2))], 1)
    batch = torch.arange(NODES).mul(2).div(NODES, rounding_mode="floor")
    return {
        "x": torch.randn(NODES, WIDTH),
        "x_0": torch.randn(NODES, WIDTH),
        "h": torch.randn(NODES, WIDTH),
        "z": torch.randint(1, 10, (NODES,)),
        "pos": torch.randn(NODES, 3),
        "normal": torch.nn.functional.normalize(torch.randn(NODES, 3), dim=-1),
        "edge_index": edges,
        "pos_edge_index": edges[:, ::2],
        "neg_edge_index": edges[:, 1::2],
        "hyperedge_index": edges,
        "edge_weight": torch.rand(EDGES),
        "edge_type": torch.randint(0, 3, (EDGES,)),
        "node_type": torch.randint(0, 2, (NODES,)),
        "index": batch,
        "batch": batch,
        "batch_size": 2,
        "dim_size": 2,
        "mask": torch.ones(2, NODES // 2, dtype=torch.bool),
        "adj": (torch.rand(2, NODES // 2, NODES // 2) > 0.5).float(),
        "head_index": torch.randint(0, NODES, (6,)),
        "rel_type": torch.randint(0, 3, (6,)),
        "tail_index": torch.randint(0, NODES, (6,)),
        "y": torch.randint(0, 2, (NODES,)),
        "xs": [torch.randn(NODES, WIDTH) for _ in range(2)],
        "src": torch.randn(NODES, WIDTH),
        "dst": torch.randn(NODES, WIDTH),
        "t": torch.randn(EDGES),
        "msg": torch.randn(EDGES, WIDTH),
    }


def module_classes(kind: str) -> dict[str, type[nn.Module]]:
    """The public modules of one part of the library."""
    import torch_geometric.nn as lib  # noqa: PLC0415

    part = getattr(lib, kind, None)
    public = getattr(part, "__all__", None) or dir(part)
    found = {name: getattr(part, name, None) for name in public}
    return {name: c for name, c in found.items() if isinstance(c, type) and issubclass(c, nn.Module)}


def names() -> Iterator[str]:
    """Every public module."""
    for kind in KINDS:
        yield from (f"{kind}:{name}" for name in sorted(module_classes(kind)))


def build(kind: str, name: str, extra: dict[str, Any], optional: tuple[str, ...]) -> Case:
    """A module from its signature; optional: arguments of `forward` passed in spite of defaults."""
    made = module_classes(kind)[name]
    given: dict[str, Any] = {}
    for parameter in inspect.signature(made).parameters.values():
        required = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        if parameter.name in extra:
            given[parameter.name] = extra[parameter.name]
        elif required and parameter.name in MADE:
            given[parameter.name] = MADE[parameter.name]()
        elif required and parameter.name in NUMBERS:
            given[parameter.name] = NUMBERS[parameter.name]
    model = made(**given)
    inputs, wanted = graph(), inspect.signature(model.forward).parameters
    if kind == "dense":
        inputs["x"] = torch.randn(2, NODES // 2, WIDTH)
    if extra.get("edge_dim"):
        inputs["edge_attr"] = torch.randn(EDGES, extra["edge_dim"])
    kwargs = {
        p.name: inputs[p.name]
        for p in wanted.values()
        if p.name in inputs and (p.default is p.empty or p.name in optional)
    }
    return Case(model, (), kwargs)


def ways(name: str) -> Iterator[Build]:
    """With edge features, weights and types if the module takes them, then with fewer."""
    kind, _, class_name = name.partition(":")
    for extra in ({}, {"edge_dim": 4}, {"in_channels": (WIDTH, WIDTH)}, {"nn": nn.Linear(2 * WIDTH, WIDTH)}):
        for optional in (("edge_weight", "edge_type", "edge_attr", "index", "batch", "dim_size"), ("index",), ()):
            yield functools.partial(build, kind, class_name, extra, optional)


LIBRARY = Library("torch_geometric", ("torch_geometric",), names, ways)
