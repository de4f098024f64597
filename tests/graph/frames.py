"""Traced frames made by hand, for tests of the graph stage alone: torch.export stands in for the tracer."""

from __future__ import annotations

from types import CodeType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export.graph_signature import InputKind

from armature.trace.data import CompiledGraphSlot, GraphInput, TracedFrame

NO_CODE: CodeType = (lambda: None).__code__


def captured(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[fx.GraphModule, list[Any], int]:
    """The module's graph with parameters and buffers as its first placeholders; all inputs; how many are state."""
    program = torch.export.export(module, inputs, strict=False)
    tensors = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    given: list[Any] = []
    state = 0
    user = iter(inputs)
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            given.append(next(user))
        else:
            given.append(tensors[spec.target] if spec.target in tensors else program.constants[spec.target])
            state += 1
    graph = fx.Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    return fx.GraphModule(program.graph_module, graph), given, state


def frame_of(module: nn.Module, *inputs: Tensor) -> tuple[TracedFrame, list[Any]]:
    """The frame, and the inputs to call its compiled graph with."""
    graph, given, state = captured(module, inputs)
    return frame(graph, given, state), given


def frame(graph: fx.GraphModule, given: list[Any], state: int = 0) -> TracedFrame:
    """A frame of a graph called flat with the inputs, the first `state` of which are parameters."""
    mode = FakeTensorMode()
    names = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
    entries = tuple(
        GraphInput(name, None, mode.from_tensor(t) if isinstance(t, Tensor) else t, k < state)  # type: ignore[arg-type]
        for k, (name, t) in enumerate(zip(names, given, strict=True))
    )
    return TracedFrame("forward", graph, entries, (), NO_CODE, CompiledGraphSlot())
