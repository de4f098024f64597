"""Moments of a trace: where each frame stands, and how tracing is stopped there when it is run again."""

from __future__ import annotations

import linecache
from types import CodeType
from typing import TYPE_CHECKING, TypeAlias

import attrs

from armature.breaks.types import FrameSummary

if TYPE_CHECKING:
    from armature.trace.state import Frame
    from armature.trace.values.base import Value

Moment: TypeAlias = tuple[int, int, int]
"""A frame's number in the trace, how often it has jumped back, and the position of the instruction about to run."""


@attrs.frozen(eq=False)
class Place:
    """A frame and the instruction it is at. callee: what that instruction called, when it is a call."""

    frame: Frame
    rounds: int
    position: int
    callee: Value | None

    @property
    def moment(self) -> Moment:
        """What names this moment in another trace of the same frame."""
        return self.frame.ordinal, self.rounds, self.position


def places_of(frames: list[Frame]) -> tuple[Place, ...]:
    """Where the frames stand, the outermost first."""
    return tuple(Place(frame, frame.rounds, max(frame.position - 1, 0), frame.callee) for frame in frames)


def described(code: CodeType, line: int) -> tuple[FrameSummary, str, str]:
    """A line of the user's code: its summary, its text as in a traceback, and "model.py:41"."""
    content = linecache.getline(code.co_filename, line).strip()
    trace = f'File "{code.co_filename}", line {line}, in {code.co_name}\n    {content}'
    place = f"{code.co_filename.rpartition('/')[2]}:{line}"
    return FrameSummary(code.co_filename, line, code.co_name, content), trace, place


class Stopped(BaseException):
    """Tracing has come to the moment at which it was to stop. Not an Exception: no handler of one may hold it up."""

    def __init__(self, frames: tuple[Frame, ...]) -> None:
        super().__init__()
        self.frames = frames
