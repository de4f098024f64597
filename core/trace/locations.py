"""Moments of a trace, and the position of each frame at one."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import TYPE_CHECKING, TypeAlias

import attrs

if TYPE_CHECKING:
    from armature.trace.base import FrameView, Value

Moment: TypeAlias = tuple[int, int, int]
"""A frame's number in the trace, how often it has jumped back, and the position of the instruction about to run."""


@attrs.frozen(eq=False)
class Location:
    """The instruction that a frame is at. callee: the function it calls, if it is a call.

    It does not hold the frame: a value may keep the location where it was made, and the frame holds the value in a
    variable.
    """

    code: CodeType
    ordinal: int
    rounds: int
    position: int
    callee: Value | None
    module: object  # of the code

    @property
    def moment(self) -> Moment:
        """Identifies this moment in another trace of the same frame."""
        return self.ordinal, self.rounds, self.position


def locations_of(frames: Sequence[FrameView]) -> tuple[Location, ...]:
    """The position of each frame, the outermost first."""
    return tuple(
        Location(one.code, one.ordinal, one.rounds, max(one.position - 1, 0), one.callee, one.namespace.get("__name__"))
        for one in frames
    )
