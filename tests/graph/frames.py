"""Traced frames made by hand, for tests of the graph stage alone."""

from __future__ import annotations

from types import CodeType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from armature.trace.data import CompiledGraphSlot, GraphInput, TracedFrame

NO_CODE: CodeType = (lambda: None).__code__


class _Inlining(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return False


def lifted(module: nn.Module) -> tuple[fx.GraphModule, list[Tensor]]:
    """The module's graph with parameters and buffers as its first placeholders, and these."""
    graph = _Inlining().trace(module)
    first = next(iter(graph.nodes))
    state: dict[str, fx.Node] = {}
    tensors: list[Tensor] = []
    for node in list(graph.nodes):
        if node.op != "get_attr":
            continue
        name = str(node.target)
        if name not in state:
            with graph.inserting_before(first):
                state[name] = graph.placeholder("p_" + name.replace(".", "_"))
            value: Any = module
            for part in name.split("."):
                value = getattr(value, part)
            tensors.append(value)
        node.replace_all_uses_with(state[name])
        graph.erase_node(node)
    output = next(n for n in graph.nodes if n.op == "output")
    if not isinstance(output.args[0], (tuple, list)):
        output.args = ((output.args[0],),)
    return fx.GraphModule({}, graph), tensors


def frame_of(module: nn.Module, *inputs: Tensor) -> tuple[TracedFrame, list[Tensor]]:
    """The frame, and the inputs to call its compiled graph with."""
    graph, state = lifted(module)
    mode = FakeTensorMode()
    given = [*state, *inputs]
    names = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
    entries = tuple(
        GraphInput(name, None, mode.from_tensor(t), k < len(state))  # type: ignore[arg-type]
        for k, (name, t) in enumerate(zip(names, given, strict=True))
    )
    return TracedFrame("forward", graph, entries, (), NO_CODE, CompiledGraphSlot()), given


def no_grad_frame(module: nn.Module, *inputs: Tensor) -> tuple[TracedFrame, list[Tensor]]:
    """The same with gradients switched off while tracing."""
    with torch.no_grad():
        return frame_of(module, *inputs)
