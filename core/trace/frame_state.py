"""The state of a frame under trace (stack, variables, position), and the state of the whole trace."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any, cast

import attrs
from torch import fx

from armature.breaks.types import BreakEvent, BreakType, FrameSummary
from armature.errors import UnknownBreakType
from armature.frame.data import FrameRequest
from armature.frame.sources import Source
from armature.torch_abi.fake import FakeWorld
from armature.trace import effects as changes
from armature.trace.errors import GraphBreak
from armature.trace.guards import GuardRecorder
from armature.trace.instructions import Instruction, instructions_of, start_of
from armature.trace.locations import Location, Moment, locations_of
from armature.trace.names import Names
from armature.trace.plans import Plan
from armature.trace.recording.overriding import Overrides
from armature.trace.recording.sizes import Sizes, new_world
from armature.trace.user_stack import Extent, UserStack
from armature.trace.values.base import Args, Effects, EndCheck, Kwargs, Precalls, Tracing, Value
from armature.trace.values.exception import ExceptionValue
from armature.trace.values.floats import FloatValue
from armature.trace.values.function import CellValue
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.config import Config
    from armature.context import CompileContext
    from armature.rules.data import Verdict


@attrs.define(eq=False, repr=False)  # no repr: it reaches everything, each value by many paths
class Frame:
    """A frame under trace. `lazy`: arguments of the outermost frame, wrapped when they are first read.

    An opcode function changes the frame: it pops and pushes values, sets `position` to jump, `done` with `result` to
    return, `paused` with `result` to yield.
    ordinal, rounds: the frame's number and how often it has jumped back; with `position` they identify a moment of the
    trace.
    own_cells: the cells with which the frame began; a comprehension may temporarily replace them.
    callee: the function that the last call instruction called.
    handling_slots: the stack positions where PUSH_EXC_INFO saved the previously handled exception, for each exception
    in `handling`.
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
        """Continue at another position."""
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
        """Pop `count` values and return them, the deepest first."""
        if not count:
            return []
        stack = self.stack
        values = stack[-count:]
        del stack[-count:]
        return values

    @property
    def line(self) -> int:
        """The line of the current instruction, or of the last one if the frame has ended."""
        return self.instructions[max(self.position - 1, 0)].line


@attrs.define(eq=False, repr=False)  # no repr: it reaches everything, each value by many paths
class Trace(Tracing):
    """The state of one trace, for the modules that extend it and write its code. `end` clears it.

    where: the frames as users see them. by_id: values of the program's objects that have an identity; the objects are
    held so that their ids stay unique. inputs: of the graph. names: resolves globals and constants. plans: the plugins'
    rows for each callable, looked up once.
    """

    ctx: CompileContext
    request: FrameRequest
    strict: bool
    fakes: FakeWorld = attrs.field(default=attrs.Factory(lambda self: new_world(self.ctx), takes_self=True))
    graph: fx.Graph = attrs.field(factory=fx.Graph)
    effects: Effects = attrs.field(factory=changes.Effects)
    frames: list[Frame] = attrs.field(factory=list)
    where: UserStack = attrs.field(default=attrs.Factory(lambda self: UserStack(self.frames), takes_self=True))
    by_id: dict[int, tuple[object, Value]] = attrs.field(factory=dict)
    by_fake: dict[int, TensorValue] = attrs.field(factory=dict)
    cells: dict[int, CellValue] = attrs.field(factory=dict)  # known cells of the program
    called: set[int] = attrs.field(factory=set)  # ids of modules that were called
    class_values: dict[Hashable, Value] = attrs.field(factory=dict)
    inputs: list[TensorValue | SymbolicValue] = attrs.field(factory=list)
    on_abort: list[tuple[Callable[[Any], Any], Any]] = attrs.field(factory=list)
    frames_cells: dict[str, CellValue] = attrs.field(factory=dict)  # free variables of the outermost frame
    generators: list[Value] = attrs.field(factory=list)
    keys: dict[Value, None] = attrs.field(factory=dict)  # values looked up in dicts and sets by identity
    # objects that new weak references refer to; whether one has a callback
    held_weakly: dict[Value, bool] = attrs.field(factory=dict)
    end_checks: dict[EndCheck, None] = attrs.field(factory=dict)
    stop: Moment | None = None  # where to stop tracing
    too_deep: tuple[Location, ...] = ()  # where the tracer itself reached Python's recursion limit
    extent: Extent = attrs.field(factory=Extent)
    has_handlers: bool = False  # whether a traced function has `try` or `with`
    mutates: bool = False  # whether the graph has an in-place operator
    atomic_depth: int = 0  # nesting depth of calls that enter the graph whole or not at all
    subgraph_depth: int = 0  # of these, calls whose nodes go in a subgraph
    rerun_breaks: list[GraphBreak] = attrs.field(factory=list)  # where to end the graph if the frame can't be rerun
    subgraph_tensors: dict[TensorValue, tuple[Location, ...]] = attrs.field(factory=dict)
    sizes: Sizes = attrs.field(default=attrs.Factory(lambda self: Sizes(self, self.fakes), takes_self=True))
    floats: dict[Source, FloatValue] = attrs.field(factory=dict)
    own_lookups: set[Source] = attrs.field(factory=set)  # sources of objects whose classes customise attribute lookup
    keeps_floats: bool = False  # whether float arguments of the program stay graph inputs
    rewrites: dict[Callable[[str, Args, Kwargs], tuple[Args, Kwargs]], None] = attrs.field(factory=dict)
    precalls: Precalls = attrs.field(factory=changes.Precalls)
    modules: dict[str, fx.GraphModule] = attrs.field(factory=dict)
    overrides: Overrides = attrs.field(factory=Overrides)
    _guards: GuardRecorder | None = None
    plans: dict[int, Plan] = attrs.field(factory=dict)
    names: Names = attrs.field(default=attrs.Factory(lambda self: Names(self, self.effects), takes_self=True))

    @property
    def guards(self) -> GuardRecorder:
        """The guards recorded so far."""
        if self._guards is None:
            self._guards = GuardRecorder(self.where.line)
        return self._guards

    @property
    def config(self) -> Config:
        """The settings of this compilation."""
        return self.ctx.config

    @property
    def tables(self) -> Any:
        """The tables of rows that plugins provide."""
        return self.ctx.tables

    def verdict(self, fn: object) -> Verdict:
        """The rules' verdict on a callable. The lookup is recorded, because the compiled code depends on the answer."""
        self.ctx.asked[id(fn)] = fn
        found: Verdict = self.tables.rule_book.verdict(fn)
        return found

    def break_at(self, places: tuple[Location, ...] | None, type_id: str, **facts: object) -> GraphBreak:
        """Build a graph break, to raise now or to keep for later. places: where the graph is to end; None: here."""
        try:
            kind: BreakType = self.tables.break_type(type_id)
        except UnknownBreakType:
            named = ", ".join(f"{name}: {{{name}}}" for name in facts)
            kind = BreakType(type_id, type_id, named or type_id, ("No plugin describes this break.",))
        event = BreakEvent(kind, facts, self.where.summaries(), values=self.where.values())
        return GraphBreak(event, locations_of(self.frames) if places is None else places)

    def origin(self) -> tuple[FrameSummary, str, str]:
        """The innermost line of the user's code: its summary, its text as in a traceback, and "model.py:41"."""
        return self.where.origin()

    def expression(self) -> str:
        """The source text of the user's expression that is being evaluated, as far as it fits on one line."""
        return self.where.expression()

    def end(self) -> None:
        """Release everything that the trace holds; using it afterwards is an AttributeError.

        Values refer to the trace through frames and streams, and the trace refers to them. Without this, the objects
        they hold, graph inputs among them, would live until the next garbage collection.
        """
        for field in attrs.fields(type(self)):
            delattr(self, field.name)


def whole(tracing: Tracing) -> Trace:
    """The full trace behind the narrower interface that plugins pass back to us."""
    return cast("Trace", tracing)


class Stopped(BaseException):
    """Tracing has reached the moment at which it was to stop. Not an Exception, so that no handler swallows it."""

    def __init__(self, frames: tuple[Frame, ...]) -> None:
        super().__init__()
        self.frames = frames
