"""Writes code that runs in a frame of the program: copies of its instructions, and moves of its stack to variables and
back.

Items of the stack go in variables of their own (`slot_name`); cells are passed as a closure.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

import attrs
import torch
from bytecode import Bytecode, CompilerFlags, Instr
from bytecode.instr import UNSET, CellVar, FreeVar, InstrLocation

from armature.errors import invariant
from armature.torch_abi.grad_modes import set_grad_enabled
from armature.trace.bytecode.emitter import Emitter
from armature.trace.bytecode.instructions import DOUBLED, decode, remade_cells
from armature.trace.resume.stack_layout import Layout, Slot, handled_name, mode_name, slot_name, variables_of
from armature.trace.signals import TraceSignal

if TYPE_CHECKING:
    from armature.trace.base import Value

DROPPED_FLAGS = (
    CompilerFlags.VARARGS | CompilerFlags.VARKEYWORDS | CompilerFlags.GENERATOR | CompilerFlags.COROUTINE
    | CompilerFlags.ASYNC_GENERATOR
)  # fmt: skip
SCRATCH = "__armature_null"
CELL = "__armature_cell_"  # prefix of the free variable that passes a cell made by a comprehension
SPARE = 12  # stack space for the calls around the program's own instructions


class CannotResume(TraceSignal):
    """The frame can't be cut here. The message says why. blame: the value that prevents it."""

    def __init__(self, reason: str, blame: Value | None = None) -> None:
        super().__init__(reason)
        self.blame = blame


@functools.lru_cache(maxsize=512)
def copies(code: CodeType) -> tuple[Instr, ...]:
    """The instructions of a code object as `bytecode` has them, one for each that `decode` returns."""
    found = tuple(single for item in Bytecode.from_code(code) if isinstance(item, Instr) for single in split(item))
    invariant(len(found) == len(decode(code)), "two readings of a code object agree", code=code.co_qualname)
    return found


def split(inst: Instr) -> tuple[Instr, ...]:
    """Split an instruction as `decode` does."""
    singles = DOUBLED.get(inst.name)
    if singles is None or not isinstance(inst.arg, tuple):
        return (inst,)
    return tuple(Instr(name, arg, location=inst.location) for name, arg in zip(singles, inst.arg))


@attrs.define(eq=False)
class FrameWriter(Emitter):
    """Writes code in a frame of `origin`: `cells` are the variables that are cells of the frame itself, and `retained`
    those that are passed on though nothing reads them; a frame that does not hand back keeps its own."""

    origin: CodeType
    cells: frozenset[str]
    retained: frozenset[str] = attrs.field(default=frozenset(), kw_only=True)
    items: list[Any] = attrs.field(factory=list, init=False)
    location: InstrLocation | None = attrs.field(default=None, init=False)
    _arguments_in_cells: frozenset[str] = attrs.field(
        default=attrs.Factory(lambda self: frozenset(self.origin.co_cellvars) - remade_cells(self.origin), True),
        init=False,
    )

    def emit(self, name: str, *arg: Any) -> None:
        """Add an instruction."""
        self.items.append(Instr(name, *arg, location=self.location))

    def copy(self, position: int, *arg: Any) -> None:
        """Add a copy of an instruction of the frame's code, with another argument where one is given."""
        inst = copies(self.origin)[position]
        given = arg or (() if inst.arg is UNSET else (self.in_frame(inst.arg, "_FAST" in inst.name),))
        if not given or given[0] is inst.arg:
            # shared, because instructions never change, and most of a long function are copied as they are
            self.items.append(inst)
        else:
            self.items.append(Instr(inst.name, *given, location=inst.location))

    def in_frame(self, arg: Any, is_local: bool = False) -> Any:
        """An instruction's argument, adapted to this frame's cells. is_local: a string names a local variable."""
        if isinstance(arg, (CellVar, FreeVar)):
            return self.variable(arg.name)
        if is_local and isinstance(arg, str) and arg in self._arguments_in_cells:
            return self.variable(arg)  # an argument in a cell: Python 3.13 loads the cell like a local variable
        return arg

    def variable(self, name: str) -> CellVar | FreeVar:
        """The operand for a variable that is a cell."""
        return CellVar(name) if name in self.cells else FreeVar(name)

    def make(self, load: Callable[[], None], free: list[CellVar | FreeVar]) -> None:
        """Push a function with this frame's globals, the code that `load` pushes and these cells."""
        for variable in free:
            self.load_cell(variable)
        if free:
            self.emit("BUILD_TUPLE", len(free))
        load()
        self.make_function(closure=bool(free))

    def push_stack(self, layout: Layout) -> None:
        """Restore the stack from its variables, and the exceptions that are being handled."""
        handled = 0
        for place, slot in enumerate(layout):
            if slot is Slot.NULL:
                self.emit("PUSH_NULL")
            elif slot is Slot.LAST_INSTRUCTION:
                self.emit("LOAD_CONST", 0)
            elif slot is Slot.HANDLED:
                self.emit("LOAD_FAST", handled_name(handled))
                self.emit("PUSH_EXC_INFO")
                self.emit("POP_TOP")
                handled += 1
            else:
                self.emit("LOAD_FAST", slot_name(place))
            if slot is Slot.CONTEXT:
                self._enter(place)
        for name in variables_of(layout):
            self.emit("DELETE_FAST", name)

    def _enter(self, place: int) -> None:
        """Enter the context manager whose `__exit__` is at a place, with the grad mode that was in force inside."""

        def load_enter() -> None:
            self.emit("LOAD_FAST", slot_name(place))
            self.attribute("__self__")
            self.attribute("__enter__")

        self.function(load_enter)
        self.call(0)
        self.emit("POP_TOP")
        self.null_function(set_grad_enabled)
        self.emit("LOAD_FAST", mode_name(place))
        self.call(1)
        self.emit("POP_TOP")

    def move(self, arguments: list[str]) -> int:
        """Push the arguments of the next piece, and count them. This frame lets go of what was on the stack and of
        variables that the program deletes: the traceback of an exception among them may lead to it. Other variables of
        the program are to live until it returns."""
        for name in arguments:
            self.emit("LOAD_FAST", name)
        deleted = {inst.argval for inst in decode(self.origin) if inst.opname == "DELETE_FAST"}
        for name in sorted({*arguments} - self.retained - ({*self.origin.co_varnames} - deleted)):
            self.emit("DELETE_FAST", name)
        return len(arguments)

    def pop_stack(self, layout: Layout) -> None:
        """Move the stack to its variables; the reverse of `push_stack`."""
        handled = layout.count(Slot.HANDLED)
        for place in range(len(layout) - 1, -1, -1):
            slot = layout[place]
            if slot is Slot.NULL:
                self.emit("STORE_FAST", SCRATCH)  # unlike POP_TOP it takes NULL
            elif slot is Slot.LAST_INSTRUCTION:
                self.emit("POP_TOP")
            elif slot is Slot.HANDLED:
                handled -= 1
                self.null_function(sys.exception)
                self.call(0)
                self.emit("STORE_FAST", handled_name(handled))
                self.emit("POP_EXCEPT")
            else:
                self.emit("STORE_FAST", slot_name(place))
            if slot is Slot.CONTEXT:
                self._leave(place)

    def _leave(self, place: int) -> None:
        """Leave the context manager whose `__exit__` is at a place, and save the grad mode inside."""
        self.null_function(torch.is_grad_enabled)
        self.call(0)
        self.emit("STORE_FAST", mode_name(place))
        self.function(lambda: self.emit("LOAD_FAST", slot_name(place)))
        for _ in range(3):
            self.emit("LOAD_CONST", None)
        self.call(3)
        self.emit("POP_TOP")

    def begin(self) -> list[str]:
        """Write the first instructions. Returns the free variables: those of the origin, and its cells."""
        free = list(dict.fromkeys([*self.origin.co_freevars, *self.origin.co_cellvars]))
        free = [CELL + name if name in self.cells else name for name in free]
        if free:
            self.emit("COPY_FREE_VARS", len(free))
        self.emit("RESUME", 0)
        return free

    def open_cells(self) -> None:
        """Put the frame's own cells in slots in which the program's instructions can replace them."""
        for name in sorted(self.cells):
            self.load_cell(FreeVar(CELL + name))
            self.emit("STORE_FAST", name)

    def assemble(self, arguments: list[str], free: list[str], qualname: str) -> CodeType:
        """The code object."""
        origin = self.origin
        made = Bytecode(self.items)
        made.name, made.qualname, made.filename = origin.co_name, qualname, origin.co_filename
        made.first_lineno = origin.co_firstlineno
        made.flags = CompilerFlags(origin.co_flags & ~DROPPED_FLAGS)
        made.argcount, made.posonlyargcount, made.kwonlyargcount = len(arguments), 0, 0
        made.argnames, made.freevars, made.cellvars = arguments, free, sorted(self.cells)
        if free:
            made.flags |= CompilerFlags.NESTED
        depth = origin.co_stacksize + len(arguments) + 2 * len(free) + SPARE
        # The exception table of the program's handlers has its own stack depths: keep them.
        return made.to_code(stacksize=depth, compute_exception_stack_depths=False)
