"""Moments of a trace, and where its frames stand at one."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import TYPE_CHECKING, TypeAlias

import attrs

if TYPE_CHECKING:
    from armature.trace.values.base import FrameView, Value

Moment: TypeAlias = tuple[int, int, int]
"""A frame's number in the trace, how often it has jumped back, and the position of the instruction about to run."""


@attrs.frozen(eq=False)
class Location:
    """The instruction that a frame is at. callee: what that instruction called, when it is a call.

    A value may keep where it was made, so the frame itself, which has the value in a variable, is not part of it.
    """

    code: CodeType
    ordinal: int
    rounds: int
    position: int
    callee: Value | None

    @property
    def moment(self) -> Moment:
        """What names this moment in another trace of the same frame."""
        return self.ordinal, self.rounds, self.position


def locations_of(frames: Sequence[FrameView]) -> tuple[Location, ...]:
    """Where the frames stand, the outermost first."""
    return tuple(
        Location(frame.code, frame.ordinal, frame.rounds, max(frame.position - 1, 0), frame.callee) for frame in frames
    )
