"""Runs the passes of a stage, in the order that the tables give, and checks what each leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from torch import fx

from armature.errors import InvariantError, invariant

if TYPE_CHECKING:
    from armature.context import CompileContext

T = TypeVar("T")


def run_passes(stage: str, subject: T, ctx: CompileContext) -> T:
    """The subject after all passes of the stage. Errors (strict): InvariantError naming the pass that broke the
    graph."""
    for step in ctx.tables.passes(stage):
        changed: Any = step.run(subject, ctx)
        invariant(isinstance(changed, type(subject)), "a pass gave something else", gave=type(changed), of=step.name)
        subject = changed
        if ctx.config.strict and isinstance(subject, fx.GraphModule):
            _lint(subject, step.name)
    return subject


def _lint(module: fx.GraphModule, name: str) -> None:
    try:
        module.graph.lint()
    except Exception as error:
        raise InvariantError(what=f"pass {name} broke the graph", details=str(error)) from error
