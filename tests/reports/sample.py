"""A run with every outcome, and a large record made by hand."""

from __future__ import annotations

import contextvars
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import nn

import armature
from armature import config
from armature.plugin_api import hookimpl
from armature.plugins import manager
from armature.reports.record import (
    Frame,
    Graph,
    Kernel,
    MemorySample,
    MemoryStep,
    Node,
    Outcome,
    Place,
    Recording,
    Span,
)
from armature.reports.recorder import Recorder


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.factor = 2

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.linear(x)) * self.factor
        if y.sum() > 1000:
            return y - 1
        return y.softmax(-1)


class Broken:
    """A plugin with a backend that can't compile."""

    @hookimpl
    def armature_graph_backends(self) -> Mapping[str, Any]:
        return {"broken": broken_backend}


def broken_backend(module: Any, inputs: Any) -> Any:
    raise RuntimeError("this backend is <broken>")


def pieces(x: Any) -> Any:
    yield x + 1


def summed(x: Any) -> Any:
    return contextvars.copy_context().run(list, pieces(x))[0]


def doubled(x: Any) -> Any:
    return x * 2


def powers(x: Any, n: Any) -> Any:
    return x * len(n)


def only_python(n: int) -> int:
    return n + 1


@cache
def everything() -> Recording:
    """A run with each outcome, its kernels timed."""
    armature.reset()
    x = torch.randn(3, 4)
    torch.manual_seed(0)
    with (
        config.patch(strict=False),
        manager().registered(Broken(), "broken"),
        warnings.catch_warnings(),
        Recorder("sample.py", ("--size", "3"), runs=True) as recorder,
    ):
        warnings.simplefilter("ignore")
        model = Small()
        compiled = armature.compile(model)
        compiled(x).sum().backward()
        model.factor = 5
        compiled(x)
        with torch.no_grad():
            compiled(x)
        armature.compile(summed)(x)
        armature.compile(doubled, backend="broken")(x)
        limited = armature.compile(powers, backend="eager", options={"recompile_limit": 2})
        for n in ("a", "bb", "ccc"):
            limited(x, n)
        armature.compile(only_python)(3)
    armature.reset()
    return recorder.recording()


def large(nodes: int = 2_000) -> Recording:
    """A record with one graph of so many nodes, fused by tens."""
    made = [Node("x", "input", "x", (), "float32[8, 16]")]
    kernels = []
    for k in range(nodes):
        inputs = (made[-1].name, made[max(0, len(made) - 7)].name)
        line = Place("/src/model.py", 7 + k % 50, "forward", f"x = step_{k % 50}(x)")
        made.append(
            Node(f"add_{k}", "operator", "aten.add.Tensor", inputs, "float32[8, 16]", line, (f"kernel_{k // 10}",))
        )
        if k % 10 == 9:
            fused = tuple(node.name for node in made[-10:])
            code = "\n".join(f"const float tmp{i} = load(in0 + {i});" for i in range(60))
            kernels.append(
                Kernel(f"kernel_{k // 10}", True, "cpu", "cpp", code, ("aten.add.Tensor",), fused, bytes_read=512)
            )
    made.append(Node("output", "output", "output", (made[-1].name,)))
    steps = tuple(MemoryStep(kernel.name, 512 * (1 + k % 3)) for k, kernel in enumerate(kernels))
    graph = Graph(0, 0, "forward_inference", "inference", tuple(made), tuple(kernels), "def call(args): ...", steps)
    frame = Frame(
        0, "Model.forward", "/src/model.py", 5, Outcome.COMPILED, f"{nodes} operators", None, 0.1, 8.0, graphs=(0,)
    )
    spans = [Span("Model.forward", "frame", 0.1, 8.0, 0)]
    spans += [Span(f"stage {k}", "stage", 0.1 + k, 0.9, 0) for k in range(8)]
    memory = tuple(MemorySample(k / 100, 2**20 * (100 + k % 40)) for k in range(900))
    parts = {"frames": (frame,), "graphs": (graph,), "spans": tuple(spans), "memory": memory}
    return Recording(program="large.py", seconds=9.0, **parts)
