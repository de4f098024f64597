"""Prints a traced frame as a readable program, with the user's lines in the margin."""

from __future__ import annotations

import torch
from torch import fx

from armature.breaks.types import FrameSummary
from armature.trace.data import TracedFrame

WIDTH = 76


def show(traced: TracedFrame) -> str:
    """The graph as a Python function of its inputs, one call a line."""
    lines = [f"def {traced.name}({', '.join(item.name for item in traced.inputs)}):"]
    sources = ["a piece before" if item.source is None else item.source.expr for item in traced.inputs]
    lines += [f"    # {item.name} = {expr}: {kind_of(item.fake)}" for item, expr in zip(traced.inputs, sources)]
    if traced.graph is None:
        return "\n".join([*lines, "    ...  # computes nothing with tensors"])
    for node in traced.graph.graph.nodes:
        if node.op == "output":
            lines.append(f"    return {node.args[0]}")
        elif node.op != "placeholder":
            lines.append(line_of(node))
    return "\n".join(lines)


def line_of(node: fx.Node) -> str:
    """One call: its text, the kind of its result, and the line of the program it comes from."""
    text = f"    {node.name} = {call_text(node)}"
    origin = node.meta.get("origin")
    if not isinstance(origin, FrameSummary):
        return text
    place = f"{origin.file.rpartition('/')[2]}:{origin.line}"
    return f"{text:<{WIDTH}}  # {kind_of(node.meta.get('example_value'))}  {place}  {origin.text}".rstrip()


def call_text(node: fx.Node) -> str:
    """`function(arguments)`."""
    args = [*map(str, node.args), *(f"{name}={value}" for name, value in node.kwargs.items())]
    if node.op == "call_method":
        return f"{args[0]}.{node.target}({', '.join(args[1:])})"
    name = getattr(node.target, "__name__", str(node.target))
    return f"{name}({', '.join(args)})"


def kind_of(value: object) -> str:
    """ "float32[2, 3]" for a tensor, a type's name for anything else."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return type(value).__name__
