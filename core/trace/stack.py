"""The frames being traced, as users read them, and how far the trace has gone."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from armature import interrupts
from armature.breaks.types import BreakEvent, BreakType, FrameSummary, SeenValue
from armature.errors import UnknownBreakType
from armature.trace.errors import GraphBreak, SkipFrame
from armature.trace.expressions import seen_values, text_at, with_columns
from armature.trace.locations import Location, Moment, locations_of

if TYPE_CHECKING:
    from armature.plugins.tables import Tables
    from armature.trace.base import FrameView, Value

F = TypeVar("F", bound="FrameView")
MOST_IDLE_STEPS = 1_000


@attrs.define(eq=False)
class FrameStack(Generic[F]):
    """The frames being traced, the outermost first.

    promising: whether the trace may be long without meeting a tensor. tensors: those met so far, by the ids of their
    fakes. ended: the frame that was traced to its end; an error about the return value is reported at its line. stop:
    where to stop tracing. too_deep: where the tracer itself reached Python's recursion limit. atomic_depth: nesting
    depth of calls that enter the graph whole or not at all. has_handlers: whether a traced function has `try` or
    `with`. generators: those made so far. codes, entered: of the frames entered, and their number. steps: functions
    entered and loop iterations, which make a trace long.
    """

    promising: bool = True
    tensors: Mapping[int, object] = attrs.field(factory=dict)
    frames: list[F] = attrs.field(factory=list)
    ended: tuple[F, ...] = ()
    stop: Moment | None = None
    too_deep: tuple[Location, ...] = ()
    atomic_depth: int = 0
    has_handlers: bool = False
    generators: list[Value] = attrs.field(factory=list)
    codes: dict[int, CodeType] = attrs.field(factory=dict)
    entered: int = 0
    steps: int = 0
    _described: dict[tuple[CodeType, int], tuple[FrameSummary, str, str]] = attrs.field(factory=dict)

    def enter(self, code: CodeType) -> int:
        """Assign a number to a frame that is entered."""
        self.codes[id(code)] = code
        self.entered += 1
        self.step()
        return self.entered - 1

    def step(self) -> None:
        """Count a step. Raises SkipFrame in a long trace that has met no tensor and isn't likely to."""
        interrupts.check()
        self.steps += 1
        if self.steps > MOST_IDLE_STEPS and not self.tensors and not self.promising:
            raise SkipFrame(f"it has met no tensor in {MOST_IDLE_STEPS} calls and rounds of loops", idle=True)

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


@attrs.frozen(eq=False)
class Breaks:
    """Builds the graph breaks of a trace."""

    tables: Tables
    stack: FrameStack[Any]

    def break_at(self, locations: tuple[Location, ...] | None, type_id: str, **facts: object) -> GraphBreak:
        """Build a graph break, to raise now or to keep for later. locations: where the graph is to end; None: here."""
        try:
            kind = self.tables.break_type(type_id)
        except UnknownBreakType:
            named = ", ".join(f"{name}: {{{name}}}" for name in facts)
            kind = BreakType(type_id, type_id, named or type_id, ("No plugin describes this break.",))
        event = BreakEvent(kind, facts, self.stack.summaries(), values=self.stack.values())
        return GraphBreak(event, locations_of(self.stack.frames) if locations is None else locations)


def described(code: CodeType, line: int) -> tuple[FrameSummary, str, str]:
    """A line of the user's code: its summary, its text as in a traceback, and "model.py:41"."""
    content = linecache.getline(code.co_filename, line).strip()
    trace = f'File "{code.co_filename}", line {line}, in {code.co_name}\n    {content}'
    place = f"{code.co_filename.rpartition('/')[2]}:{line}"
    return FrameSummary(code.co_filename, line, code.co_name, content), trace, place
