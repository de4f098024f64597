"""A frame of the program under trace: its stack, variables and place in the code."""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol, cast

import attrs

from armature.trace.instructions import Instruction, instructions_of, start_of
from armature.trace.values.base import Tracing, Value
from armature.trace.values.exception import ExceptionValue
from armature.trace.values.function import CellValue

if TYPE_CHECKING:
    from armature.context import CompileContext
    from armature.frame.sources import Source
    from armature.rules.data import Verdict
    from armature.trace.errors import GraphBreak
    from armature.trace.names import Names
    from armature.trace.places import Moment, Place
    from armature.trace.plans import Plan
    from armature.trace.recording.overriding import Overrides
    from armature.trace.recording.sizes import Sizes
    from armature.trace.user_stack import Extent, UserStack
    from armature.trace.values.floats import FloatValue
    from armature.trace.values.symbolic import SymbolicValue
    from armature.trace.values.tensor import TensorValue


@attrs.define(eq=False, repr=False)  # holds all there is, each value by many ways
class Frame:
    """A frame. `lazy`: arguments of the outermost frame, wrapped when they are first read.

    An opcode function changes the frame: pops and pushes values, sets `position` to jump, `done` with `result` to
    return, `paused` with `result` to yield.

    ordinal, rounds: with `position` they name a moment of the trace: the frame's number, and how often it jumped back.
    own_cells: the cells with which the frame began; a comprehension may put others in their place for a while.
    callee: what the last call instruction called. handling_slots: where on the stack PUSH_EXC_INFO kept what was
    handled before, for each exception in `handling`.
    """

    tracer: Trace
    code: CodeType
    namespace: dict[str, object]
    variables: dict[str, Value]
    cells: dict[str, CellValue]
    builtins: Mapping[str, object]
    globals_source: Source | None = None  # None: the globals of the frame being compiled
    lazy: dict[str, tuple[object, Source]] = attrs.field(factory=dict)
    instructions: tuple[Instruction, ...] = ()
    stack: list[Value] = attrs.field(factory=list)
    position: int = 0
    keyword_names: tuple[str, ...] = ()
    done: bool = False
    paused: bool = False
    result: Value | None = None
    thrown: ExceptionValue | None = None
    handling: list[ExceptionValue] = attrs.field(factory=list)
    handling_slots: list[int] = attrs.field(factory=list)
    trusted: bool = False
    own_cells: Mapping[str, CellValue] = attrs.field(factory=dict)
    ordinal: int = 0
    rounds: int = 0
    callee: Value | None = None

    def __attrs_post_init__(self) -> None:
        self.instructions, self.position = instructions_of(self.code), start_of(self.code)
        self.ordinal = self.tracer.extent.next_frame(self.code)
        self.tracer.extent.step(self.tracer)

    def jump(self, target: int) -> None:
        """Go on at another position."""
        if target < self.position:
            self.rounds += 1
            self.tracer.extent.step(self.tracer)
        self.position = target

    def push(self, value: Value) -> None:
        """Push on the stack."""
        self.stack.append(value)

    def pop(self) -> Value:
        """Pop from the stack."""
        return self.stack.pop()

    def popn(self, count: int) -> list[Value]:
        """Pop `count` values, the deepest first."""
        if not count:
            return []
        stack = self.stack
        values = stack[-count:]
        del stack[-count:]
        return values

    @property
    def line(self) -> int:
        """The line of the instruction that runs, or ran last."""
        return self.instructions[max(self.position - 1, 0)].line


class Trace(Tracing, Protocol):
    """The trace with all its parts, for the modules that make it grow and write its code.

    where: the frames as people read them. inputs: of the graph. frames_cells: free variables of the outermost frame.
    stop: where to stop tracing. too_deep: where
    the Python that traces came to its limit. has_handlers: some function that was traced has `try` or `with`.
    names: what globals and constants stand for. plans: what plugins say of callables, each asked for once.
    rerun_breaks: where the graph ends if the frame can't run again.
    """

    ctx: CompileContext
    strict: bool
    frames: list[Frame]
    where: UserStack
    by_fake: dict[int, TensorValue]
    inputs: list[TensorValue | SymbolicValue]
    frames_cells: dict[str, CellValue]
    generators: list[Value]
    stop: Moment | None
    too_deep: tuple[Place, ...]
    extent: Extent
    has_handlers: bool
    rerun_breaks: list[GraphBreak]
    sizes: Sizes
    floats: dict[Source, FloatValue]
    cells: dict[int, CellValue]
    overrides: Overrides
    names: Names
    plans: dict[int, Plan]

    @property
    def tables(self) -> Any:
        """What plugins know."""

    def break_at(self, places: tuple[Place, ...] | None, type_id: str, **facts: object) -> GraphBreak:
        """The graph break to raise, or to keep. places: where the graph is to end; None: here."""

    def verdict(self, fn: object) -> Verdict:
        """What the rules say of a callable."""


def whole(tracing: Tracing) -> Trace:
    """The trace with all its parts, for functions that plugins may call with what they have of it."""
    return cast("Trace", tracing)


class Stopped(BaseException):
    """Tracing has come to the moment at which it was to stop. Not an Exception: no handler of one may hold it up."""

    def __init__(self, frames: tuple[Frame, ...]) -> None:
        super().__init__()
        self.frames = frames
