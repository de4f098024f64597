"""Prints a compiled graph for people: its parts, in one line each."""

from __future__ import annotations

from armature.run.data import CompiledGraph


def show(graph: CompiledGraph) -> str:
    """Name, counts and kernels."""
    program = graph.program
    lines = [
        f"{graph.name}: {program.kernel_count} kernels, {program.fused_count} operators fused, "
        f"{program.extern_count} operators called as they are"
    ]
    lines += [f"  {k.name}({', '.join(k.arguments)})  {k.operators} operators" for k in graph.plan.launches]
    return "\n".join(lines) + "\n"
