"""How tracing ends early: a graph break, nothing to compile, or an exception of the traced program."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING

from armature.trace.signals import TraceSignal

if TYPE_CHECKING:
    from armature.breaks.types import BreakEvent
    from armature.frame.guards.guard import Guard
    from armature.trace.locations import Location
    from armature.trace.values.base import Value


class GraphBreak(TraceSignal):
    """The frame cannot go in one graph. `event` says why and where, `guards` what tracing relied on until then.

    locations: where each frame stood, for resuming. blame: the value that cannot be rebuilt, where that is the reason.
    not_resumed: why the frame could not be cut there. assumed: tracing went on after it, and nothing can check that
    it may. idle: no tensor was met until then.
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
        """The same, for `raise`: a frame that held the error by name would stand in its traceback, and in a cycle."""
        self.blame = value
        return self

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.event.facts.items())
        return f"{self.event.type.id}({facts})"


class SkipFrame(TraceSignal):
    """There is nothing to compile in the frame. once: this time, and in no frame below it either. frees: the frame asks
    which objects live, so that tracing must have let go of them when it runs.

    idle: it computes nothing with tensors, as far as it was traced; whole: that is to its end, with all that it calls,
    of these codes. guards: what tracing relied on until then.
    """

    def __init__(
        self,
        reason: str,
        *,
        once: bool = False,
        frees: bool = False,
        idle: bool = False,
        whole: tuple[CodeType, ...] = (),
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.once = once
        self.frees = frees
        self.idle = idle
        self.whole = whole
        self.guards: tuple[Guard, ...] = ()


class UserRaised(TraceSignal):
    """The traced program raised `value` (an exception value); the frame is unwound as CPython would."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value
