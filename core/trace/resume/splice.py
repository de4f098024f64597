"""Code that goes on in the middle of a frame: resume functions, and the piece that runs one instruction untraced.

Both are made of copies of the program's own instructions, which keep their lines and their exception handlers. What
stood on the stack comes in variables of its own (`layout.slot_name`), cells come as a closure.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable
from types import CodeType
from typing import TYPE_CHECKING, Any
from weakref import ref

import attrs
import torch
from bytecode import Bytecode, CompilerFlags, Instr, Label
from bytecode.instr import UNSET, CellVar, FreeVar, InstrLocation, TryBegin, TryEnd

from armature.errors import invariant
from armature.frame.data import HeldCode, ResumePoint, ResumeTable
from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.grad_modes import set_grad_enabled
from armature.trace.emit.emitter import Emitter
from armature.trace.instructions import DOUBLED, Protection, decode, remade_cells
from armature.trace.resume.liveness import accesses, live_at, reachable
from armature.trace.resume.stack_layout import (
    CALLS,
    PLAIN,
    Layout,
    Slot,
    after,
    effect,
    handled_name,
    kinds,
    mode_name,
    slot_name,
    variables_of,
)
from armature.trace.resume.trampoline import Continue, forget_caller

if TYPE_CHECKING:
    from armature.trace.values.base import Value

VERSION = sys.version_info[:2]
DROPPED_FLAGS = (
    CompilerFlags.VARARGS | CompilerFlags.VARKEYWORDS | CompilerFlags.GENERATOR | CompilerFlags.COROUTINE
    | CompilerFlags.ASYNC_GENERATOR
)  # fmt: skip
SCRATCH = "__armature_null"
CELL = "__armature_cell_"  # begins the name of the free variable by which a cell comes that a comprehension made
INNER, INNER_ARGS = "__armature_inner", "__armature_inner_args"
MAX_CODES = 256  # pieces made for one code object and what it calls
MAX_TAIL = 8  # instructions up to `return` that are not worth a resume function
TAIL = PLAIN | {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_CONST", "BUILD_TUPLE"}
RETURNS = frozenset({"RETURN_VALUE", "RETURN_CONST"})
RAISES = frozenset({"RAISE_VARARGS", "RERAISE"})
# They change what exception is handled, suspend the frame, or depend on the instruction before.
NOT_ALONE = frozenset({
    "PUSH_EXC_INFO", "POP_EXCEPT", "YIELD_VALUE", "SEND", "RETURN_GENERATOR", "CLEANUP_THROW", "MAKE_CELL",
    "COPY_FREE_VARS",
    "LOAD_SUPER_ATTR", "GET_AWAITABLE", "END_SEND", "RESUME", "LOAD_FAST_AND_CLEAR", "END_FOR", "GET_YIELD_FROM_ITER",
})  # fmt: skip


# Instructions of Python 3.13 for two variables, which must be among the first: their numbers have four bits each.
VARIABLES_IN_PAIRS = 16
PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
}


class CannotResume(Exception):
    """The frame can't be cut here. The text says why. blame: the value that does not allow it."""

    def __init__(self, reason: str, blame: Value | None = None) -> None:
        super().__init__(reason)
        self.blame = blame


@functools.lru_cache(maxsize=512)
def copies(code: CodeType) -> tuple[Instr, ...]:
    """The instructions of a code object as `bytecode` has them; as many as `decode` gives."""
    found = tuple(single for item in Bytecode.from_code(code) if isinstance(item, Instr) for single in split(item))
    invariant(len(found) == len(decode(code)), "two readings of a code object agree", code=code.co_qualname)
    return found


def split(inst: Instr) -> tuple[Instr, ...]:
    """As `decode` does it."""
    singles = DOUBLED.get(inst.name)
    if singles is None or not isinstance(inst.arg, tuple):
        return (inst,)
    return tuple(Instr(name, arg, location=inst.location) for name, arg in zip(singles, inst.arg))


@attrs.define(eq=False)
class Writer(Emitter):
    """Writes code in a frame of `origin`: `cells` are the variables that are cells of the frame itself.

    hands_back: the code is run by a loop in another frame, and gives it what to run next. variables: how many it may
    have. kept: variables that are handed on though nothing reads them; without `hands_back` this frame keeps its own.
    """

    origin: CodeType
    cells: frozenset[str]
    table: ResumeTable
    hands_back: bool
    kept: frozenset[str] = frozenset()
    variables: int = VARIABLES_IN_PAIRS + 1
    items: list[Any] = attrs.field(factory=list)
    location: InstrLocation | None = None
    _arguments_in_cells: frozenset[str] = attrs.field(
        default=attrs.Factory(lambda self: frozenset(self.origin.co_cellvars) - remade_cells(self.origin), True),
        init=False,
    )

    def emit(self, name: str, *arg: Any) -> None:
        """Add an instruction."""
        self.items.append(Instr(name, *arg, location=self.location))

    def copy(self, position: int, *arg: Any) -> int:
        """Add a copy of an instruction of the frame's code; how many instructions it takes."""
        inst = copies(self.origin)[position]
        given = arg or (() if inst.arg is UNSET else (self.in_frame(inst.arg, "_FAST" in inst.name),))
        if not given or (given[0] is inst.arg and inst.name not in PAIRS):
            self.items.append(inst)  # nobody changes instructions; most of a long function's are as they were
            return 1
        if inst.name in PAIRS and self.variables > VARIABLES_IN_PAIRS:
            for name, variable in zip(PAIRS[inst.name], given[0], strict=True):
                self.items.append(Instr(name, variable, location=inst.location))
            return 2
        self.items.append(Instr(inst.name, *given, location=inst.location))
        return 1

    def in_frame(self, arg: Any, is_local: bool = False) -> Any:
        """An argument, with cells as this frame has them. is_local: a string is the name of a local variable."""
        if isinstance(arg, (CellVar, FreeVar)):
            return self.variable(arg.name)
        if is_local and isinstance(arg, str) and arg in self._arguments_in_cells:
            return self.variable(arg)  # an argument in a cell: Python 3.13 loads the cell like a local variable
        if isinstance(arg, tuple):
            return tuple(self.in_frame(item, is_local) for item in arg)
        return arg

    def variable(self, name: str) -> CellVar | FreeVar:
        """A variable that is a cell."""
        return CellVar(name) if name in self.cells else FreeVar(name)

    def load_cell(self, variable: CellVar | FreeVar) -> None:
        """Push a cell itself."""
        self.emit("LOAD_CLOSURE" if VERSION < (3, 13) else "LOAD_FAST", variable)

    # The stack.

    def push_stack(self, layout: Layout) -> None:
        """Put on the stack what its variables hold, and handle the exceptions that are being handled."""
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
                    self.function(lambda place=place: self._enter_of(place))  # type: ignore[misc]
                    self.call(0)
                    self.emit("POP_TOP")
                    self.function(lambda: self.emit("LOAD_CONST", set_grad_enabled))
                    self.emit("LOAD_FAST", mode_name(place))
                    self.call(1)
                    self.emit("POP_TOP")
        for name in variables_of(layout):
            self.emit("DELETE_FAST", name)

    def _enter_of(self, place: int) -> None:
        self.emit("LOAD_FAST", slot_name(place))
        self.attribute("__self__")
        self.attribute("__enter__")

    def pop_stack(self, layout: Layout) -> None:
        """The other way round."""
        handled = layout.count(Slot.HANDLED)
        for place in range(len(layout) - 1, -1, -1):
            slot = layout[place]
            if slot is Slot.NULL:
                self.emit("STORE_FAST", SCRATCH)  # unlike POP_TOP it takes NULL
            elif slot is Slot.LAST_INSTRUCTION:
                self.emit("POP_TOP")
            elif slot is Slot.HANDLED:
                handled -= 1
                self.function(lambda: self.emit("LOAD_CONST", sys.exception))
                self.call(0)
                self.emit("STORE_FAST", handled_name(handled))
                self.emit("POP_EXCEPT")
            else:
                self.emit("STORE_FAST", slot_name(place))
                if slot is Slot.CONTEXT:
                    self.function(lambda: self.emit("LOAD_CONST", torch.is_grad_enabled))
                    self.call(0)
                    self.emit("STORE_FAST", mode_name(place))
                    self.function(lambda place=place: self.emit("LOAD_FAST", slot_name(place)))  # type: ignore[misc]
                    for _ in range(3):
                        self.emit("LOAD_CONST", None)
                    self.call(3)
                    self.emit("POP_TOP")

    # One instruction, run as it is.

    def run(self, position: int, layout: Layout, bound: frozenset[str], *, inner: bool) -> None:
        """Run the instruction at a position, and go on after it; `inner`: call the code that stands for its call."""
        instructions = decode(self.origin)
        inst = instructions[position]
        self.location = copies(self.origin)[position].location
        handler, taken = Label(), Label()
        with_handler = inst.protection
        if with_handler is not None:
            begin = TryBegin(handler, with_handler.push_lasti, with_handler.depth)
            self.items.append(begin)
            self.emit("NOP")  # see INLINED
        if inner:
            self._call_inner()
            rest = (*layout, Slot.VALUE)
        else:
            self._one(position, taken)
            rest = after(inst, layout)
        ends = inst.opname in RAISES or (inst.opname in RETURNS and not inner)
        following, rest, now = (
            (position + 1, rest, bound) if ends else self._plain(position + 1, rest, bound, with_handler)
        )
        if with_handler is not None:
            self.items.append(TryEnd(begin))
        if not ends:
            self.leave(following, rest, now)
        if not inner and inst.target >= 0:
            self.items.append(taken)
            skipped = 0
            if inst.opname == "FOR_ITER":  # CPython jumps over what stands here
                for name in (
                    ("END_FOR",) if VERSION == (3, 12) else ("END_FOR", "POP_TOP") if VERSION >= (3, 13) else ()
                ):
                    self.emit(name)
                    skipped += 1
            self.leave(inst.target + skipped, after(inst, layout, jump=True), bound)
        if with_handler is not None:
            self.items.append(handler)
            last = (Slot.LAST_INSTRUCTION,) if with_handler.push_lasti else ()
            self.leave(with_handler.target, (*layout[: with_handler.depth], *last, Slot.VALUE), bound)

    def _call_inner(self) -> None:
        self.function(lambda: self.emit("LOAD_FAST", INNER))
        self.emit("LOAD_FAST", INNER_ARGS)
        self.emit("DELETE_FAST", INNER)
        self.emit("DELETE_FAST", INNER_ARGS)
        self.emit("CALL_FUNCTION_EX", 0)

    def _one(self, position: int, taken: Label) -> None:
        inst = decode(self.origin)[position]
        if inst.opname in CALLS:
            if not inst.arg:  # CPython's fast ways to call a method in C look at its object, even where there is none
                self.emit("LOAD_CONST", None)
                self.emit("POP_TOP")
            start = position
            while decode(self.origin)[start - 1].opname in ("PRECALL", "KW_NAMES"):
                start -= 1
            for step in range(start, position + 1):
                self.copy(step)
        elif inst.target >= 0:
            name = inst.opname.replace("_BACKWARD_", "_FORWARD_")
            self.items.append(Instr(name, taken, location=self.location))
        elif inst.opname == "LOAD_METHOD" or (inst.opname == "LOAD_ATTR" and VERSION >= (3, 12) and inst.arg & 1):
            self._method(str(inst.argval))
        else:
            self.copy(position)

    def _method(self, name: str) -> None:
        """A method to be called, bound: how LOAD_METHOD finds it can't be seen from outside."""
        self.attribute(name)
        self.emit("PUSH_NULL")
        if VERSION < (3, 13):
            self.emit("SWAP", 2)

    def _plain(
        self, position: int, layout: Layout, bound: frozenset[str], protection: Protection | None
    ) -> tuple[int, Layout, frozenset[str]]:
        """Run on over what only puts the result where it belongs. Gives where that ends, and how things are there."""
        instructions = decode(self.origin)
        stored = False
        while True:
            inst = instructions[position]
            unpacks = inst.opname == "UNPACK_SEQUENCE" and not stored
            if (inst.opname not in PLAIN and not unpacks) or inst.protection != protection:
                return position, layout, bound
            if not layout and inst.opname != "NOP":
                return position, layout, bound
            if inst.opname == "STORE_FAST":
                stored = True
                bound = bound | {str(inst.argval)}
            if inst.opname == "UNPACK_SEQUENCE":
                layout = (*layout[:-1], *[Slot.VALUE] * inst.arg)
            else:
                layout = layout[: len(layout) + effect(inst, False)]
            self.copy(position)
            position += 1

    # Going on.

    def leave(self, position: int, layout: Layout, bound: frozenset[str]) -> None:
        """Go on at a position: in a resume function, or here where only `return` is left."""
        tail = self._tail(position, layout, bound)
        if tail:
            for step in tail:
                self.copy(step)
            return
        self.pop_stack(layout)
        kept = self.kept if self.hands_back else frozenset()
        names = in_order(self.origin, bound & (live_at(self.origin, position) | kept))
        code, key = resume_code(self.table, self.origin, position, names, layout)
        arguments = [*names, *variables_of(layout)]
        if self.hands_back:
            self.function(lambda: self.emit("LOAD_CONST", Continue))
            self._make(code, key)
            for name in arguments:
                self.emit("LOAD_FAST", name)
            self.emit("BUILD_TUPLE", len(arguments))
            self.emit("BUILD_TUPLE", 2)
            self.call(1)
            self.emit("RETURN_VALUE")
            return
        self._drive(code, key, arguments)

    def _tail(self, position: int, layout: Layout, bound: frozenset[str]) -> list[int]:
        if not set(layout) <= {Slot.VALUE, Slot.NULL}:
            return []
        instructions = decode(self.origin)
        for step in range(position, min(position + MAX_TAIL, len(instructions))):
            inst = instructions[step]
            reads, writes = accesses(inst)
            if inst.opname in RETURNS:
                return list(range(position, step + 1))
            if inst.opname not in TAIL or not bound.issuperset(reads):
                break
            bound = bound.union(writes)
        return []

    def _make(self, code: CodeType, key: Hashable) -> None:
        """Push a function of this frame's globals and cells."""
        if code.co_freevars:
            for name in code.co_freevars:
                self.load_cell(self.variable(name.removeprefix(CELL)))
            self.emit("BUILD_TUPLE", len(code.co_freevars))
        if self.hands_back:
            self.function(lambda: self.emit("LOAD_CONST", held_code(self.table, key)))
            self.call(0)
        else:
            self.emit("LOAD_CONST", code)
        if VERSION < (3, 13):
            self.emit("MAKE_FUNCTION", 8 if code.co_freevars else 0)
            return
        self.emit("MAKE_FUNCTION")
        if code.co_freevars:
            self.emit("SET_FUNCTION_ATTRIBUTE", 8)

    def _drive(self, code: CodeType, key: Hashable, arguments: list[str]) -> None:
        """Call the resume function, and what it and each one after it hands back; return what the last returns."""
        result, loop, done, failed = "__armature_result", Label(), Label(), Label()
        first = TryBegin(failed, False, 0)
        self.items.append(first)
        self.function(lambda: self._make(code, key))
        for name in arguments:
            self.emit("LOAD_FAST", name)
        self.call(len(arguments))
        self.items.append(loop)
        self.emit("STORE_FAST", result)
        self.function(lambda: self.emit("LOAD_CONST", type))
        self.emit("LOAD_FAST", result)
        self.call(1)
        self.emit("LOAD_CONST", Continue)
        self.emit("IS_OP", 0)
        self.emit("POP_JUMP_FORWARD_IF_FALSE" if VERSION < (3, 12) else "POP_JUMP_IF_FALSE", done)
        self.emit("LOAD_FAST", result)
        self.emit("UNPACK_SEQUENCE", 2)
        self.emit("STORE_FAST", SCRATCH)
        self.emit("STORE_FAST", result)
        self.function(lambda: self.emit("LOAD_FAST", SCRATCH))
        self.emit("LOAD_FAST", result)
        self.emit("DELETE_FAST", result)
        self.emit("CALL_FUNCTION_EX", 0)
        self.emit("JUMP_BACKWARD", loop)
        self.items.append(done)
        self.items.append(TryEnd(first))
        self.emit("LOAD_FAST", result)
        self.emit("RETURN_VALUE")
        self.items.append(failed)
        # Eager mode has one frame where we have two: the traceback must not show this one.
        if VERSION < (3, 13):
            self.emit("PUSH_NULL")
            self.emit("SWAP", 2)
            self.emit("LOAD_CONST", forget_caller)
            self.emit("SWAP", 2)
        else:
            self.emit("LOAD_CONST", forget_caller)
            self.emit("SWAP", 2)
            self.emit("PUSH_NULL")
            self.emit("SWAP", 2)
        self.call(1)
        self.emit("RERAISE", 0)


def in_order(code: CodeType, names: frozenset[str]) -> tuple[str, ...]:
    """Variables as the code has them: `super()` looks for the first."""
    return tuple(name for name in code.co_varnames if name in names)


def resume_code(
    table: ResumeTable, origin: CodeType, entry: int, names: tuple[str, ...], layout: Layout
) -> tuple[CodeType, Hashable]:
    """The code of the function that goes on at `entry`, with these variables bound and this on the stack."""
    key = ("resume", ref(origin), origin.co_filename, entry, names, kinds(layout))
    held = table.made.get(key)
    if held is not None:
        return held, key
    if len(table.made) >= MAX_CODES:
        raise CannotResume(f"{MAX_CODES} pieces of it were compiled already")
    cells = len(origin.co_cellvars) + len(origin.co_freevars)
    variables = len(origin.co_varnames) + cells + len(layout) + 2
    out = Writer(origin, remade_cells(origin), table, hands_back=True, variables=variables)
    out.location = copies(origin)[entry].location
    free = start(out)
    out.push_stack(layout)
    labels: dict[int, Label] = {}
    out.emit("JUMP_FORWARD", label_of(labels, entry))
    prologue = sum(isinstance(item, Instr) for item in out.items)
    kept = reachable(origin, entry)
    positions = copy_all(out, kept, labels)
    line = decode(origin)[entry].line
    made = assemble(out, [*names, *variables_of(layout)], free, f"{origin.co_qualname} (resumed at line {line})")
    point = ResumePoint(ref(origin), (*[-1] * prologue, *positions), ref(table))
    made = made.replace(co_consts=(*made.co_consts, point))
    table.made[key] = made
    return made, key


def stub_code(
    table: ResumeTable, origin: CodeType, position: int, names: tuple[str, ...], layout: Layout, *, inner: bool
) -> tuple[CodeType, Hashable]:
    """The code that stands for a frame inlined so far: runs the one instruction, and goes on in resume functions."""
    key = ("stub", ref(origin), origin.co_filename, position, names, kinds(layout), inner)
    held = table.made.get(key)
    if held is not None:
        return held, key
    out = Writer(origin, remade_cells(origin), table, hands_back=False)
    out.location = copies(origin)[position].location
    free = start(out)
    out.push_stack(layout)
    out.run(position, layout, frozenset(names), inner=inner)
    more = [INNER, INNER_ARGS] if inner else []
    made = assemble(out, [*names, *variables_of(layout), *more], free, origin.co_qualname)
    skip_code(made)
    table.made[key] = made
    return made, key


def held_code(table: ResumeTable, key: Hashable) -> HeldCode:
    """What finds a code of the table again."""
    return HeldCode(ref(table), key)


skip_code(HeldCode.__call__.__code__)


def start(out: Writer) -> list[str]:
    """The first instructions. Gives the free variables: those of the origin, and its cells."""
    free = list(dict.fromkeys([*out.origin.co_freevars, *out.origin.co_cellvars]))
    free = [CELL + name if name in out.cells else name for name in free]
    if free:
        out.emit("COPY_FREE_VARS", len(free))
    out.emit("RESUME", 0)
    for name in sorted(out.cells):  # in a slot in which the program's own instructions can put another
        out.load_cell(FreeVar(CELL + name))
        out.emit("STORE_FAST", name)
    return free


def label_of(labels: dict[int, Label], position: int) -> Label:
    """The label of a position."""
    return labels.setdefault(position, Label())


def copy_all(out: Writer, kept: list[int], labels: dict[int, Label]) -> list[int]:
    """Copy instructions with their jumps and handlers. Gives the position of each in its code; -1: it has none."""
    positions: list[int] = []
    instructions = decode(out.origin)
    for position in kept:
        inst = instructions[position]
        for target in (inst.target, inst.protection.target if inst.protection is not None else -1):
            if target >= 0:
                label_of(labels, target)
    region: Protection | None = None
    begin: TryBegin | None = None
    for position in kept:
        inst = instructions[position]
        enters = inst.protection != region
        if enters or position in labels:
            if begin is not None:
                out.items.append(TryEnd(begin))
                begin = None
            region = inst.protection
        if position in labels:
            out.items.append(labels[position])
        if region is not None and begin is None:
            begin = TryBegin(label_of(labels, region.target), region.push_lasti, region.depth)
            out.items.append(begin)
            if enters and inst.opname in INLINED:
                out.emit("NOP")
                positions.append(-1)
        if inst.target >= 0:
            count = out.copy(position, labels[inst.target])
        else:
            count = out.copy(position)
        positions += [position] + [-1] * (count - 1)
    if begin is not None:
        out.items.append(TryEnd(begin))
    return positions


def assemble(out: Writer, arguments: list[str], free: list[str], qualname: str) -> CodeType:
    """The code object."""
    origin = out.origin
    made = Bytecode(out.items)
    made.name, made.qualname, made.filename = origin.co_name, qualname, origin.co_filename
    made.first_lineno = origin.co_firstlineno
    made.flags = CompilerFlags(origin.co_flags & ~DROPPED_FLAGS)
    made.argcount, made.posonlyargcount, made.kwonlyargcount = len(arguments), 0, 0
    made.argnames, made.freevars, made.cellvars = arguments, free, sorted(out.cells)
    if free:
        made.flags |= CompilerFlags.NESTED
    return to_code(made, origin.co_stacksize + len(arguments) + 2 * len(free) + SPARE)


# Python 3.13 runs what these call in its own loop, and looks for the handler one place before them.
INLINED = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW", "BINARY_SUBSCR", "LOAD_ATTR", "FOR_ITER", "SEND"})
SPARE = 12  # places of the stack for the calls around the program's own instructions


def to_code(made: Bytecode, stacksize: int) -> CodeType:
    """Assemble as written: the depths in the exception table are the program's own."""
    return made.to_code(stacksize=stacksize, compute_exception_stack_depths=False)


def depth_of(items: list[Any]) -> int:
    """An upper bound of the stack that instructions without jumps need."""
    depth = most = 0
    for item in items:
        if isinstance(item, Instr):
            depth += item.stack_effect(jump=False)
            most = max(most, depth)
    return most
