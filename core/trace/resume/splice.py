"""The piece of code that runs the instruction at which a graph breaks unchanged, and continues in resume functions."""

from __future__ import annotations

from collections.abc import Hashable
from types import CodeType
from typing import TypeAlias
from weakref import ref

import attrs
from bytecode import Instr, Label
from bytecode.instr import TryBegin, TryEnd

from armature.frame.data import CodeReference, ResumeTable
from armature.frame.trampoline import Continue, forget_caller
from armature.torch_abi.eval_frame import skip_code
from armature.trace.bytecode.instructions import Protection, decode, loads_method, remade_cells
from armature.trace.bytecode.versions import LOOP_END
from armature.trace.resume.eager_steps import States, states_of
from armature.trace.resume.frame_writer import CELL, SCRATCH, FrameWriter, copies
from armature.trace.resume.liveness import accesses, live_at
from armature.trace.resume.resume_functions import copy_all, hand_back, label_of, resume_code
from armature.trace.resume.stack_layout import CALLS, PLAIN, Layout, Slot, after, effect, kinds, variables_of

INNER, INNER_ARGS = "__armature_inner", "__armature_inner_args"
MAX_TAIL = 16  # instructions up to `return` that are not worth a resume function
ITEMS = frozenset({"BINARY_SUBSCR", "BINARY_SLICE", "STORE_SUBSCR", "STORE_SLICE"})  # a kernel does no more for them
TAIL = PLAIN | ITEMS | {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_CONST", "BUILD_TUPLE", "BUILD_SLICE"}
RETURNS = frozenset({"RETURN_VALUE", "RETURN_CONST"})
RAISES = frozenset({"RAISE_VARARGS", "RERAISE"})
# They change the handled exception, suspend the frame, or depend on the instruction before.
NOT_ALONE = frozenset({
    "PUSH_EXC_INFO", "POP_EXCEPT", "YIELD_VALUE", "SEND", "RETURN_GENERATOR", "CLEANUP_THROW", "MAKE_CELL",
    "COPY_FREE_VARS",
    "LOAD_SUPER_ATTR", "GET_AWAITABLE", "END_SEND", "RESUME", "LOAD_FAST_AND_CLEAR", "END_FOR", "GET_YIELD_FROM_ITER",
})  # fmt: skip


@attrs.define(eq=False)
class BreakWriter(FrameWriter):
    """Writes code that runs one instruction and continues after it. hands_back: the code is called by a loop in
    another frame, and tells it what to run next. steps: the instructions that run as they are after that one."""

    table: ResumeTable
    hands_back: bool
    steps: tuple[int, ...] = ()
    _labels: dict[int, Label] = attrs.field(factory=dict, init=False)

    def run(self, position: int, layout: Layout, bound: frozenset[str], *, inner: bool) -> None:
        """Run the instruction at a position and continue after it. `inner`: call the code that replaces its call."""
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
        following = None if ends else self._plain(position + 1, rest, bound, with_handler)
        if with_handler is not None:
            self.items.append(TryEnd(begin))
        if following is not None:
            self.leave(*following)
        if not inner and inst.target >= 0:
            self.items.append(taken)
            skipped = self._end_loop() if inst.opname == "FOR_ITER" else 0
            self.leave(inst.target + skipped, after(inst, layout, jump=True), bound)
        if with_handler is not None:
            self.items.append(handler)
            last = [Slot.LAST_INSTRUCTION] * with_handler.push_lasti
            self.leave(with_handler.target, (*layout[: with_handler.depth], *last, Slot.VALUE), bound)
        self._run_steps(states_of(self.origin, self.steps, (position, layout, bound)))

    def _run_steps(self, states: States) -> None:
        """Write the instructions that run as they are, and continue where they end."""
        copy_all(self, self.steps, self._labels)
        ends_at, self.steps = [position for position in self._labels if position not in self.steps], ()
        for position in ends_at:
            self.items.append(self._labels[position])
            at_end_of_loop = (decode(self.origin)[position].opname,) == LOOP_END[:1]
            self.leave(position + (self._end_loop() if at_end_of_loop else 0), *states[position])

    def _end_loop(self) -> int:
        """Write the instructions that CPython jumps over at the end of a loop. Returns how many there are."""
        for name in LOOP_END:
            self.emit(name)
        return len(LOOP_END)

    def _call_inner(self) -> None:
        self.function(lambda: self.emit("LOAD_FAST", INNER))
        self.emit("LOAD_FAST", INNER_ARGS)
        self.emit("DELETE_FAST", INNER)
        self.emit("DELETE_FAST", INNER_ARGS)
        self.emit("CALL_FUNCTION_EX", 0)

    def _one(self, position: int, taken: Label) -> None:
        inst = decode(self.origin)[position]
        if inst.opname in CALLS:
            if not inst.arg:  # CPython's fast paths for calling a C method look at its object, even where there is none
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
        elif loads_method(inst):  # as a bound method: a lookup in two parts can't be observed from outside
            self.attribute(str(inst.argval))
            self.null_below()
        else:
            self.copy(position)

    def _plain(
        self, position: int, layout: Layout, bound: frozenset[str], protection: Protection | None
    ) -> tuple[int, Layout, frozenset[str]]:
        """Continue over instructions that only store the result. Returns where that ends, and the state there."""
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

    def leave(self, position: int, layout: Layout, bound: frozenset[str]) -> None:
        """Continue at a position: in a resume function, or here if it is one of `steps` or only a `return` is left."""
        if position in self.steps:
            self.emit("JUMP_FORWARD", label_of(self._labels, position))
            return
        tail = self._tail(position, layout, bound)
        if tail:
            for step in tail:
                self.copy(step)
            return
        self.pop_stack(layout)
        retained = self.retained if self.hands_back else frozenset()
        names = in_order(self.origin, bound & (live_at(self.origin, position) | retained))
        code, key = resume_code(self.table, self.origin, position, names, layout)
        arguments = [*names, *variables_of(layout)]
        if self.hands_back:
            hand_back(self, lambda: self._make(code, key), arguments)
        else:
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
            eager = TAIL if inst.protection is None else TAIL - ITEMS
            if inst.opname not in eager or not bound.issuperset(reads):
                break
            bound = bound.union(writes)
        return []

    def _make(self, code: CodeType, key: Hashable) -> None:
        """Push a function with this frame's globals and cells."""

        def load_code() -> None:
            if not self.hands_back:
                self.emit("LOAD_CONST", code)
                return
            self.null_function(code_lookup(self.table, key))
            self.call(0)

        self.make(load_code, [self.variable(name.removeprefix(CELL)) for name in code.co_freevars])

    def _drive(self, code: CodeType, key: Hashable, arguments: list[str]) -> None:
        """Call the resume function, then each function that it or a later one hands back; return the last result."""
        result, loop, done, failed = "__armature_result", Label(), Label(), Label()
        first = TryBegin(failed, False, 0)
        self.items.append(first)
        self.function(lambda: self._make(code, key))
        self.call(self.move(arguments))
        self.items.append(loop)
        self.emit("STORE_FAST", result)
        self.null_function(type)
        self.emit("LOAD_FAST", result)
        self.call(1)
        self.emit("LOAD_CONST", Continue)
        self.emit("IS_OP", 0)
        self.jump_if_false(done)
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
        self.apply(forget_caller)  # eager mode has one frame where we have two: hide this one from the traceback
        self.emit("RERAISE", 0)


def in_order(code: CodeType, names: frozenset[str]) -> tuple[str, ...]:
    """Variables in the order of the code: `super()` reads the first one."""
    return tuple(name for name in code.co_varnames if name in names)


Cut: TypeAlias = tuple[CodeType, int, tuple[str, ...], Layout, tuple[int, ...]]
"""The program's code, the position, the variables and the stack there, and the instructions that run as they are."""


def stub_code(table: ResumeTable, cut: Cut, *, inner: bool) -> tuple[CodeType, Hashable]:
    """The code that replaces an inlined frame: it runs the one instruction, and continues in resume functions."""
    program, position, names, layout, steps = cut
    origin = table.copy_of(program)
    key = ("stub", id(origin), position, names, kinds(layout), steps, inner)
    held = table.codes.get(key)
    if held is not None:
        return held, key
    out = BreakWriter(origin, remade_cells(origin), table, hands_back=False, steps=steps)
    out.location = copies(origin)[position].location
    free = out.begin()
    out.open_cells()
    out.push_stack(layout)
    out.run(position, layout, frozenset(names), inner=inner)
    more = [INNER, INNER_ARGS] if inner else []
    made = out.assemble([*names, *variables_of(layout), *more], free, origin.co_qualname)
    skip_code(made)
    table.codes[key] = made
    return made, key


def code_lookup(table: ResumeTable, key: Hashable) -> CodeReference:
    """A function that looks up a code object in the table."""
    return CodeReference(ref(table), key)


skip_code(CodeReference.__call__.__code__)
