"""The ways in which tracing ends early: a graph break, a skipped frame, or an exception of the traced program."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING

from armature.trace.signals import TraceSignal

if TYPE_CHECKING:
    from armature.breaks.types import BreakEvent
    from armature.frame.guards.guard import Guard
    from armature.trace.base import Value
    from armature.trace.locations import Location


class GraphBreak(TraceSignal):
    """The frame can't be captured in one graph. `event` says why and where, `guards` what tracing relied on so far.

    locations: where each frame stood, for resuming. blame: the value that can't be rebuilt, if that is the reason.
    not_resumed: why the frame could not be cut there. assumed: tracing went on past the break on an assumption that the
    graph cannot check. idle: no tensor had been met.
    """

    def __init__(self, event: BreakEvent, locations: tuple[Location, ...] = ()) -> None:
        super().__init__(event)
        self.event = event
        self.locations = locations
        self.blame: Value | None = None
        self.not_resumed = ""
        self.assumed = False
        self.idle = False
        self.guards: tuple[Guard, ...] = ()

    def blaming(self, value: Value) -> GraphBreak:
        """Set `blame` and return self, for use in `raise`. A frame that held the error by name would be part of its
        traceback, and so of a reference cycle."""
        self.blame = value
        return self

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.event.facts.items())
        return f"{self.event.type.id}({facts})"


class SkipFrame(TraceSignal):
    """There is nothing to compile in the frame.

    once: skip this call only, and the frames below it too. frees: the frame asks which objects are alive, so tracing
    must have released them when it runs.
    idle: the traced part computes nothing with tensors. idle_codes: the codes of the frame and of everything it calls,
    if none of them does. guards: what tracing relied on so far.
    """

    def __init__(
        self,
        reason: str,
        *,
        once: bool = False,
        frees: bool = False,
        idle: bool = False,
        idle_codes: tuple[CodeType, ...] = (),
        guards: tuple[Guard, ...] = (),
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.once = once
        self.frees = frees
        self.idle = idle
        self.idle_codes = idle_codes
        self.guards = guards


class UserRaised(TraceSignal):
    """The traced program raised `value` (an exception value); the frame is unwound as in CPython."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value
