"""The spec of a compiled graph; run in strict mode."""

from __future__ import annotations

from armature.errors import invariant
from armature.run.data import CompiledGraph


def verify(graph: CompiledGraph) -> None:
    """Raise InvariantError if the parts belong to different graphs, or a kernel of the plan has no source."""
    invariant(callable(graph.call), "a compiled graph that can't be called", graph=graph.name)
    planned = {kernel.name for kernel in graph.plan.launches}
    printed = {name for source in graph.program.sources for name in source.kernels}
    invariant(planned == printed, "plan and sources name different kernels", plan=planned, sources=printed)
    places = sum(node.op == "placeholder" for node in graph.aten.module.graph.nodes)
    invariant(places == len(graph.plan.inputs), "the wrapper takes different inputs from the graph", graph=graph.name)
