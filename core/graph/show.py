"""Prints a functional ATen graph as a readable program, with the user's lines in the margin."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from armature.graph.data import AtenGraph
from armature.torch_abi.memory import on_host

COLUMN = 88


def show(aten: AtenGraph) -> str:
    """The whole graph as text; deterministic."""
    return show_module(aten.module, aten.name)


def show_module(module: fx.GraphModule, name: str = "graph") -> str:
    """A graph of operators or of torch functions as text."""
    lines: list[str] = []
    given: list[str] = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            given.append(f"{node.name}: {describe(node.meta.get('val', node.meta.get('example_value')))}")
        elif node.op == "output":
            lines.append(f"    return {_argument(node.args[0])}")
        else:
            lines.append(_with_origin(f"    {node.name} = {_call(node)}", node))
    head = ",\n        ".join(given)
    return f"def {name}(\n        {head},\n):\n" + "\n".join(lines) + "\n"


def describe(value: Any) -> str:
    """`float32[3, 4] strides (4, 1)` for a tensor; the value itself for anything else."""
    if not isinstance(value, torch.Tensor):
        return str(value)
    dtype = str(value.dtype).removeprefix("torch.")
    sizes = ", ".join(str(s) for s in value.shape)
    device = "" if on_host(value) else f" {value.device}"
    return f"{dtype}[{sizes}] strides ({', '.join(str(s) for s in value.stride())}){device}"


def _call(node: fx.Node) -> str:
    given = [_argument(a) for a in node.args] + [f"{k}={_argument(v)}" for k, v in node.kwargs.items()]
    name = (
        str(node.target)
        if isinstance(node.target, torch._ops.OpOverload)
        else getattr(node.target, "__name__", node.target)
    )
    return f"{name}({', '.join(given)})"


def _argument(value: Any) -> str:
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, (list, tuple)):
        return f"({', '.join(_argument(v) for v in value)})"
    return str(value)


def _with_origin(line: str, node: fx.Node) -> str:
    origin = node.meta.get("origin")
    if origin is None or not origin.file:
        return line
    return f"{line.ljust(COLUMN)}  # {origin.file.rsplit('/', 1)[-1]}:{origin.line}  {origin.text}".rstrip()
