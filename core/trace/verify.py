"""The spec of a traced frame, checked in strict mode."""

from __future__ import annotations

from torch import fx

from armature.errors import invariant
from armature.trace.data import TracedFrame


def verify(traced: TracedFrame) -> None:
    """Raise InvariantError naming the violated invariant."""
    held = sum(constant is traced.slot for constant in traced.code.co_consts)
    invariant(held == (traced.graph is not None), "the code calls the graph once", frame=traced.name, slots=held)
    if traced.graph is None:
        return
    nodes = list(traced.graph.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    first = nodes[: len(placeholders)]
    invariant(first == placeholders, "placeholders stand first", frame=traced.name)
    names = [node.name for node in placeholders]
    given = [item.name for item in traced.inputs]
    invariant(names == given, "inputs are the placeholders, in order", placeholders=names, inputs=given)
    sources = [item.source for item in traced.inputs]
    invariant(len(set(sources)) == len(sources), "no source is an input twice", frame=traced.name)
    for node in nodes:
        check_node(node)
    traced.graph.graph.lint()


def check_node(node: fx.Node) -> None:
    """A call must have the user's line, and its result must be known."""
    if not node.op.startswith("call_"):
        return
    invariant("origin" in node.meta, "a call has the user's line", node=node.name)
    invariant(bool(node.meta.get("stack_trace")), "a call has a stack trace", node=node.name)
