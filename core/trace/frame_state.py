"""The state of a frame under trace (stack, variables, position), and the state of the whole trace."""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import TYPE_CHECKING, TypeAlias

import attrs

from armature.frame.data import FrameRequest
from armature.frame.sources import Source
from armature.torch_abi.fake import FakeWorld
from armature.trace import effects as changes
from armature.trace import type_rules
from armature.trace.base import Effects, Ending, Precalls, Tracing, TypeRules, Value
from armature.trace.bytecode.instructions import Instruction, instructions_of, start_of
from armature.trace.guards import GuardRecorder
from armature.trace.locations import Location
from armature.trace.names import Names
from armature.trace.objects import Objects
from armature.trace.plans import Knowledge
from armature.trace.recorder import GraphRecorder
from armature.trace.recording.overriding import Overrides
from armature.trace.recording.sizes import Sizes
from armature.trace.stack import Breaks, FrameStack
from armature.trace.values.constant import ATOMS
from armature.trace.values.derived import READERS
from armature.trace.values.exception import ExceptionValue
from armature.trace.values.function import CellValue
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.config import Config

Recorder: TypeAlias = GraphRecorder[Value, TensorValue | SymbolicValue, tuple[Location, ...]]


@attrs.define(eq=False, repr=False)  # no repr: it would print the whole trace, and each value many times
class Frame:
    """A frame under trace; `protocols.FrameView` documents most attributes.

    An opcode function changes the frame: it pops and pushes values, sets `position` to jump, `done` with `result` to
    return, `paused` with `result` to yield. handling_slots: the stack positions where PUSH_EXC_INFO saved the
    previously handled exception, for each exception in `handling`.
    tracer: the whole trace, which opcode functions read.
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
        self.ordinal = self.tracer.stack.enter(self.code)

    def jump(self, target: int) -> None:
        """Continue at another position."""
        if target < self.position:
            self.rounds += 1
            self.tracer.stack.step()
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


@attrs.define(eq=False, repr=False)  # no repr: it would print the whole trace, and each value many times
class Trace(Tracing):
    """The state of one trace, for the modules that extend it and write its code. `end` clears it.

    knowledge: the plugins' rows. names: resolves globals and constants. breaks: builds graph breaks. users_backend:
    whether a function of the user's makes what runs the graph.
    """

    request: FrameRequest
    config: Config
    knowledge: Knowledge
    fakes: FakeWorld
    users_backend: bool = False
    objects: Objects[Value, TensorValue, CellValue] = attrs.field(factory=Objects)
    recorder: Recorder = attrs.field(factory=GraphRecorder)
    effects: Effects = attrs.field(factory=changes.Effects)
    precalls: Precalls = attrs.field(factory=changes.Precalls)
    ending: Ending = attrs.field(factory=changes.Ending)
    stack: FrameStack[Frame] = attrs.field(init=False)
    guards: GuardRecorder = attrs.field(init=False)
    breaks: Breaks = attrs.field(init=False)
    overrides: Overrides = attrs.field(init=False)
    sizes: Sizes = attrs.field(init=False)
    names: Names = attrs.field(init=False)
    types: TypeRules = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.stack = FrameStack(self.request.promising, self.objects.by_fake)
        self.guards = GuardRecorder(self.stack.line)
        self.breaks = Breaks(self.knowledge.tables, self.stack)
        self.overrides = Overrides(self.effects, self.breaks)
        self.sizes = Sizes(
            self.request, self.fakes, self.recorder, self.stack, self.breaks, lambda value: self.graph.lift(value)
        )
        self.names = Names(self.objects, self.guards, self.effects, self.constant, self.raise_error, self.graph_break)
        tables = self.knowledge.tables
        bases, atoms = READERS | tables.base_readers, tables.constant_types | ATOMS
        classes, chooses = tables.value_type_of_class, tables.functions.chooses_class
        self.types = type_rules.TypeRules(bases, atoms, tables.handler, classes, chooses)

    def end(self) -> None:
        """Release everything that the trace holds; using it afterwards is an AttributeError.

        Values refer to the trace through frames and streams, and the trace refers to them. Without this, the objects
        they hold, graph inputs among them, would live until the next garbage collection.
        """
        for field in attrs.fields(type(self)):
            delattr(self, field.name)


class Stopped(BaseException):
    """Tracing has reached the moment at which it was to stop. Not an Exception, so that no handler swallows it."""

    def __init__(self, frames: tuple[Frame, ...]) -> None:
        super().__init__()
        self.frames = frames
