"""The ways in which tracing ends early: a graph break, a skipped frame, or an exception of the traced program."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING

import attrs

from armature.trace.signals import TraceSignal

if TYPE_CHECKING:
    from armature.breaks.types import BreakEvent
    from armature.frame.guards.guard import Guard
    from armature.trace.base import Value
    from armature.trace.locations import Location


@attrs.define(eq=False, slots=False)
class GraphBreak(TraceSignal):
    """The frame can't be captured in one graph. `event` says why and where, `guards` what tracing relied on so far.

    locations: where each frame stood, for resuming. blame: the value that can't be rebuilt, if that is the reason.
    not_resumed: why the frame could not be cut there. assumed: tracing went on past the break on an assumption that the
    graph cannot check. idle: no tensor had been met.
    """

    event: BreakEvent
    locations: tuple[Location, ...] = ()
    blame: Value | None = attrs.field(default=None, init=False)
    not_resumed: str = attrs.field(default="", init=False)
    assumed: bool = attrs.field(default=False, init=False)
    idle: bool = attrs.field(default=False, init=False)
    guards: tuple[Guard, ...] = attrs.field(default=(), init=False)

    def blaming(self, value: Value) -> GraphBreak:
        """Set `blame` and return self, for use in `raise`. A frame that held the error by name would be part of its
        traceback, and so of a reference cycle."""
        self.blame = value
        return self

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.event.facts.items())
        return f"{self.event.type.id}({facts})"


@attrs.define(eq=False, slots=False)
class SkipFrame(TraceSignal):
    """There is nothing to compile in the frame.

    once: skip this call only, and the frames below it too. frees: the frame asks which objects are alive, so tracing
    must have released them when it runs.
    idle: the traced part computes nothing with tensors. idle_codes: the codes of the frame and of everything it calls,
    if none of them does. guards: what tracing relied on so far.
    """

    reason: str
    once: bool = attrs.field(default=False, kw_only=True)
    frees: bool = attrs.field(default=False, kw_only=True)
    idle: bool = attrs.field(default=False, kw_only=True)
    idle_codes: tuple[CodeType, ...] = attrs.field(default=(), kw_only=True)
    guards: tuple[Guard, ...] = attrs.field(default=(), kw_only=True)

    def __str__(self) -> str:
        return self.reason


class UserRaised(TraceSignal):
    """The traced program raised `value` (an exception value); the frame is unwound as in CPython."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value
