"""A frame of the program under trace: its stack, variables and place in the code."""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import TYPE_CHECKING

import attrs

from armature.trace.instructions import Instruction, decode
from armature.trace.values.base import Value
from armature.trace.values.exception import ExceptionValue
from armature.trace.values.function import CellValue

if TYPE_CHECKING:
    from armature.frame.sources import Source
    from armature.trace.tracer import Tracer


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

    tracer: Tracer
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
        self.instructions = decode(self.code)
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
