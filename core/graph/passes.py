"""Runs the passes of a stage in the order given by tables and settings, and checks their output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from torch import fx

from armature.errors import ArmatureError, PassFailed
from armature.graph.data import Pass, PassRun
from armature.graph.pass_check import State, problem
from armature.graph.show import show_module

if TYPE_CHECKING:
    from armature.context import CompileContext

T = TypeVar("T")


def chosen(passes: Sequence[Pass], disabled: frozenset[str], first: Sequence[str]) -> list[Pass]:
    """The passes that are not disabled. Those named in `first` go before others if `before` and `after` allow it."""
    left = [step for step in passes if step.name not in disabled]
    places = {name: place for place, name in enumerate(first)}
    out: list[Pass] = []
    while left:
        free = [step for step in left if not any(_goes_before(other, step) for other in left if other is not step)]
        # the first of the unordered ones
        step = min(free or left[:1], key=lambda one: places.get(one.name, len(places)))
        out.append(step)
        left.remove(step)
    return out


def _goes_before(one: Pass, other: Pass) -> bool:
    return one.name in other.after or other.name in one.before


def run_passes(stage: str, subject: T, ctx: CompileContext, show: Callable[[T], str] | None = None) -> T:
    """The subject after all passes of the stage. show: prints a subject that is not an fx.GraphModule.

    Errors: PassFailed naming plugin and pass, if a pass raises or returns an object of another type; in strict mode
    also if it breaks the graph.
    """
    settings = ctx.config
    steps: Sequence[Pass] = ctx.tables.passes(stage)
    if settings.disabled_passes or settings.pass_order:
        steps = chosen(steps, settings.disabled_passes, settings.pass_order)
    for step in steps:
        before = _text(subject, show) if settings.keep_passes else ""
        subject = _ran(step, subject, ctx)
        if settings.keep_passes:
            owner = ctx.tables.owner_of_pass(step.name)
            ctx.passes.append(PassRun(stage, step.name, owner, before, _text(subject, show)))
    return subject


def _ran(step: Pass, subject: T, ctx: CompileContext) -> T:
    """The subject after one pass."""
    state = State.of(subject) if ctx.config.strict and isinstance(subject, fx.GraphModule) else None
    try:
        changed: Any = step.run(subject, ctx)
    except ArmatureError:
        raise
    except Exception as error:
        raise _failure(step, ctx, f"{type(error).__name__}: {error}") from error
    if not isinstance(changed, type(subject)):
        raise _failure(step, ctx, f"it returned {type(changed).__name__}, not {type(subject).__name__}")
    if state is not None and isinstance(changed, fx.GraphModule) and (found := problem(state, changed, ctx.operators)):
        raise _failure(step, ctx, found)
    return changed


def _failure(step: Pass, ctx: CompileContext, problem: str) -> PassFailed:
    return PassFailed(name=step.name, plugin=ctx.tables.owner_of_pass(step.name), problem=problem)


def _text(subject: T, show: Callable[[T], str] | None) -> str:
    if isinstance(subject, fx.GraphModule):
        return show_module(subject)
    return show(subject) if show is not None else ""
