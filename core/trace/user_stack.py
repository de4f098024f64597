"""The frames being traced, as users read them, and how far the trace has gone."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from types import CodeType
from typing import TYPE_CHECKING

import attrs

from armature.breaks.types import FrameSummary, SeenValue
from armature.trace.errors import SkipFrame
from armature.trace.expressions import seen_values, text_at, with_columns

if TYPE_CHECKING:
    from armature.trace.values.base import FrameView, Tracing

MOST_IDLE_STEPS = 1_000


@attrs.define(eq=False)
class Extent:
    """How far a trace has gone. steps: functions entered and loop iterations, which make a trace long."""

    frames: int = 0
    steps: int = 0
    codes: dict[int, CodeType] = attrs.field(factory=dict)  # of all frames that were entered

    def next_frame(self, code: CodeType) -> int:
        """Assign a number to a frame that is entered."""
        self.codes[id(code)] = code
        self.frames += 1
        return self.frames - 1

    def step(self, tracer: Tracing) -> None:
        """Count a step. Raises SkipFrame in a long trace that has met no tensor and isn't likely to."""
        self.steps += 1
        if self.steps > MOST_IDLE_STEPS and not tracer.by_fake and not tracer.request.promising:
            raise SkipFrame(f"it has met no tensor in {MOST_IDLE_STEPS} calls and rounds of loops", idle=True)


@attrs.define(eq=False)
class UserStack:
    """The frames being traced, the outermost first, as users read them.

    ended: the frame that was traced to its end; an error about the return value is reported at its line.
    """

    frames: Sequence[FrameView]
    ended: Sequence[FrameView] = ()
    _described: dict[tuple[CodeType, int], tuple[FrameSummary, str, str]] = attrs.field(factory=dict)

    def summaries(self) -> tuple[FrameSummary, ...]:
        """The user's stack, innermost last, with the expression being evaluated on each line."""
        return tuple(with_columns(self._summary(frame)[0], frame) for frame in self.frames or self.ended)

    def values(self) -> tuple[SeenValue, ...]:
        """The operands of the innermost line of the user's code."""
        return next((seen_values(frame) for frame in reversed(self.frames or self.ended) if not frame.trusted), ())

    def origin(self) -> tuple[FrameSummary, str, str]:
        """The innermost line of the user's code: its summary, its text as in a traceback, and "model.py:41"."""
        for frame in reversed(self.frames):
            if not frame.trusted:
                return self._summary(frame)
        return self._summary(self.frames[0]) if self.frames else (FrameSummary("", 0, ""), "", "")

    def expression(self) -> str:
        """The source text of the user's expression that is being evaluated, as far as it fits on one line."""
        frame = next((frame for frame in reversed(self.frames) if not frame.trusted), self.frames[0])
        return text_at(with_columns(self._summary(frame)[0], frame))

    def line(self) -> str:
        """The user's line that a guard is attributed to."""
        return self.origin()[2]

    def _summary(self, frame: FrameView) -> tuple[FrameSummary, str, str]:
        code, line = frame.code, frame.line
        known = self._described.get((code, line))
        if known is None:
            known = self._described[(code, line)] = described(code, line)
        return known


def described(code: CodeType, line: int) -> tuple[FrameSummary, str, str]:
    """A line of the user's code: its summary, its text as in a traceback, and "model.py:41"."""
    content = linecache.getline(code.co_filename, line).strip()
    trace = f'File "{code.co_filename}", line {line}, in {code.co_name}\n    {content}'
    place = f"{code.co_filename.rpartition('/')[2]}:{line}"
    return FrameSummary(code.co_filename, line, code.co_name, content), trace, place
