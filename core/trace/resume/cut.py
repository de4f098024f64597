"""The code of a frame that breaks: it calls the graph, makes the deferred changes, restores the state in which the
frame broke, runs that instruction as it is, and continues in resume functions.

A break in an inlined function is handled there: each frame from the outermost to that one gets a piece of code. The
innermost piece runs the instruction; each outer one calls the next piece in place of its call.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from types import BuiltinFunctionType, CodeType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import attrs
import torch

from armature.frame.data import program_of, resume_point
from armature.frame.sources import LocalSource
from armature.frame.stack_size import stack_size
from armature.introspection import MISSING, class_member, unbound
from armature.torch_abi.eval_frame import skip_code
from armature.trace.base import LAST_INSTRUCTION, OF_METHOD, BoundMethod, Null, Tracing, Value
from armature.trace.bytecode.instructions import Instruction, decode, instructions_of, remade_cells, slot_names
from armature.trace.emit.rebuild import Rebuilder
from armature.trace.emit.value_writer import output_name
from armature.trace.frame_state import Frame
from armature.trace.resume.eager_steps import states_of
from armature.trace.resume.frame_writer import CELL, SPARE, CannotResume
from armature.trace.resume.liveness import live_at, read_unbound, rebound
from armature.trace.resume.splice import INNER, INNER_ARGS, NOT_ALONE, BreakWriter, code_lookup, in_order, stub_code
from armature.trace.resume.stack_layout import CALLS, Layout, Slot, handled_name, mode_name, operands, slot_name
from armature.trace.values.context import ContextValue
from armature.trace.values.function import CallableValue, CellValue, MethodValue

if TYPE_CHECKING:
    from armature.trace.data import CompiledGraphSlot
    from armature.trace.locations import Location

C_METHODS = (MethodDescriptorType, WrapperDescriptorType)
SUSPENDED = 0x20 | 0x80 | 0x100 | 0x200


@attrs.frozen(eq=False)
class CutFrame:
    """A frame and the point where it is cut. position: of the instruction in `origin`, the program's code (the frame's
    code may be a copy). names: the bound variables to hand on. retained: those among them that are only kept alive.
    stack_values: the values of the stack's variables. steps: further instructions that run as they are after it."""

    frame: Frame
    origin: CodeType
    position: int
    names: tuple[str, ...]
    retained: frozenset[str]
    layout: Layout
    stack_values: dict[str, Value]
    steps: tuple[int, ...] = ()

    def leave_contexts(self) -> None:
        """Leave the torch context managers that the frame is inside. The grad mode inside each is saved for entering it
        again, because a call may have changed it."""
        for place, leave in reversed([*enumerate(self.frame.stack)]):
            context = leave.owner if self.layout[place] is Slot.CONTEXT and isinstance(leave, BoundMethod) else None
            if not isinstance(context, ContextValue):
                continue
            if not context.reenters:
                raise CannotResume(f"{context.describe()} can't be entered again", context)
            self.stack_values[mode_name(place)] = self.frame.tracer.constant(torch.is_grad_enabled())
            context.leave(self.frame.tracer)


def why_not(code: CodeType) -> str | None:
    """Why frames of a code object can't be cut; None if they can."""
    if code.co_flags & SUSPENDED:
        return "it is a generator"
    if slot_names(code) is not None:
        return "a comprehension in it has a variable of the name of a free variable"
    if "super" in code.co_names and code.co_varnames and code.co_varnames[0] in code.co_cellvars:
        return "super() looks for its first argument, which is a cell"
    return None


def cut_frame(frame: Frame, position: int, steps: Collection[int] = ()) -> CutFrame:
    """Collect what is needed to continue a frame at a position of its code. Raises CannotResume."""
    origin = program_of(frame.code)
    reason = why_not(origin)
    if reason is None and position >= len(decode(origin)):
        reason = "it breaks where it resumes"
    if reason is None and decode(origin)[position].opname in NOT_ALONE:
        reason = f"{decode(origin)[position].opname} can't run on its own"
    if not frame.cells.keys() >= remade_cells(origin):
        reason = "a variable of a comprehension stands in the place of a cell"
    empty = frozenset(name for name, cell in frame.cells.items() if cell.is_empty)
    if reason is None and (unbound := read_unbound(origin, position, empty)):
        reason = f"{min(unbound)} may be unbound where it is read"  # a resume function gets it from a closure
    made = {name for name in weakly_held(frame) if frame.variables[name].source is None}
    if reason is None and (let_go := rebound(origin, position, made)):
        reason = f"a weak reference may tell when {min(let_go)} is let go"  # the code before the break holds it too
    if reason is not None:
        raise CannotResume(f"{origin.co_qualname}: {reason}")
    stack = with_function_of_method(frame, decode(origin)[position])
    layout = tuple(slot_of(frame, place, value) for place, value in enumerate(stack))
    held = {slot_name(place): value for place, value in enumerate(stack) if layout[place] in (Slot.VALUE, Slot.CONTEXT)}
    for number, error in enumerate(frame.handling):
        held[handled_name(number)] = error
    bound = frozenset(frame.variables) | frozenset(frame.lazy)
    retained = retained_for_weak_references(frame, origin) & bound
    names = in_order(origin, bound & live_at(origin, position) | retained)
    certain = states_of(origin, steps, (position, layout, frozenset(names)))
    return CutFrame(frame, origin, position, names, retained, layout, held, tuple(sorted(certain.keys() & steps)))


def with_function_of_method(frame: Frame, inst: Instruction) -> list[Value]:
    """The stack; a call of a C method gets its function and object separately, as CPython's error messages do."""
    stack = list(frame.stack)
    place = len(stack) - operands(inst) if inst.opname in CALLS else -1
    if place < 0 or OF_METHOD not in stack[place : place + 2]:
        return stack
    method = next(value for value in stack[place : place + 2] if value is not OF_METHOD)
    function, owner = split_method(frame.tracer, method)
    if owner is not None and type(function) in C_METHODS:
        stack[place : place + 2] = [frame.tracer.as_value(function), owner]
    return stack


def split_method(tracer: Tracing, method: Value) -> tuple[object, Value | None]:
    """The function and the object of a bound method."""
    if isinstance(method, BoundMethod):
        return class_member(method.owner.python_type(), method.name), method.owner
    if isinstance(method, MethodValue) and isinstance(method.function, CallableValue):
        return method.function.fn, method.owner
    if isinstance(method, CallableValue) and type(method.fn) in (BuiltinFunctionType, MethodWrapperType):
        bound: Any = method.fn
        function = unbound(bound)
        return function, None if function is MISSING else tracer.as_value(bound.__self__)
    return None, None


def retained_for_weak_references(frame: Frame, origin: CodeType) -> frozenset[str]:
    """Variables that weak references observe: their objects must live as long as the frame."""
    names = weakly_held(frame)
    point = resume_point(frame.code)
    if point is not None:  # arguments passed only to keep them alive
        names.update(set(frame.code.co_varnames[: frame.code.co_argcount]) - live_at(origin, point.entry))
    return frozenset(names)


def weakly_held(frame: Frame) -> set[str]:
    """Variables with an object that a weak reference made in the frame refers to."""
    return {name for name, value in frame.variables.items() if value in frame.tracer.objects.held_weakly}


def slot_of(frame: Frame, place: int, value: Value) -> Slot:
    """What kind of item a position of the stack holds."""
    if isinstance(value, Null):
        return Slot.NULL
    if value is LAST_INSTRUCTION:
        return Slot.LAST_INSTRUCTION
    if place in frame.handling_slots:
        return Slot.HANDLED
    if isinstance(value, BoundMethod) and value.name == "__exit__" and isinstance(value.owner, ContextValue):
        return Slot.CONTEXT if value.owner.inside else Slot.VALUE
    return Slot.VALUE


@attrs.define
class CutWriter(Rebuilder):
    """Writes the code that runs instead of a frame that breaks. `cuts`: its frames, the outermost first."""

    def write(self, cuts: list[CutFrame], slot: CompiledGraphSlot | None) -> CodeType:
        """The code."""
        root = cuts[0]
        for name in self.code.co_cellvars:
            cell = root.frame.own_cells.get(name)
            if cell is not None:
                self._cells[id(cell)] = name
        prologue = self.prologue(slot)
        self._state(cuts)
        written = [*prologue, *self._size_reads, *self.epilogue(slot), *self.main]
        table, resumed = self.tracer.request.resumes, resume_point(self.code) is not None
        cells = frozenset(self.code.co_cellvars)
        out = BreakWriter(root.origin, cells, table, resumed, root.steps, retained=root.retained)
        out.push_stack(root.layout)
        out.run(root.position, root.layout, frozenset(root.names), inner=len(cuts) > 1)
        spare = len(root.layout) + 2 * len(self.code.co_freevars + self.code.co_cellvars) + len(self.code.co_varnames)
        depth = max(stack_size(written), root.origin.co_stacksize) + spare + len(root.stack_values) + SPARE
        made = self._assemble([*written, *out.items, *self.after_failure()], depth)
        if not out.hands_back:
            made = made.replace(co_consts=(*made.co_consts, self.tracer.request.resumes))
        skip_code(made)
        return made

    def _state(self, cuts: list[CutFrame]) -> None:
        """Bring the program's objects and this frame's variables to their state at the break."""
        writes = self.changes()
        kept = [self._keep_frame(cut, root=index == 0) for index, cut in enumerate(cuts)]
        cells = self._keep_cells(cuts[0].frame)
        remade = self._keep_remade(cuts[0])
        inner = self._keep_inner(cuts, kept)
        prepared = self.prepare(writes)
        self.make_writes(prepared)
        for name, held in cells.items():
            if held is None:
                self.emit("DELETE_DEREF", self.variable(name))
            else:
                self.emit("LOAD_FAST", held)
                self.emit("STORE_DEREF", self.variable(name))
        targets = {**kept[0], **inner, **remade}
        for held in targets.values():
            self.emit("LOAD_FAST", held)
        for name in reversed(targets):
            self.emit("STORE_FAST", name)
        self._forget(cuts[0].frame, targets)

    def _keep_frame(self, cut: CutFrame, *, root: bool) -> dict[str, str]:
        """Map the frame's variables and stack to the variables that hold their values until they are set."""
        found = {}
        for name in cut.names:
            value = cut.frame.variables.get(name)
            if value is None:
                if root:
                    continue  # an argument that was never read still holds its value
                value = self.tracer.objects.wrap(*cut.frame.lazy[name])
            if not (root and value.source == LocalSource(name)):
                found[name] = self.keep(value)
        for name, value in cut.stack_values.items():
            found[name] = self.keep(value)
        return found

    def _keep_cells(self, frame: Frame) -> dict[str, str | None]:
        """The contents of the cells that the frame itself makes; None: the cell is to be emptied."""
        found: dict[str, str | None] = {}
        for name in self.code.co_cellvars:
            cell = frame.own_cells.get(name)
            if cell is None or (cell.content is not None and cell.content.source == LocalSource(name, cell=True)):
                continue
            if cell.content is not None:
                found[name] = self.keep(cell.content)
            elif name in self.tracer.request.locals:
                found[name] = None
        return found

    def _keep_remade(self, cut: CutFrame) -> dict[str, str]:
        """The cells that replace those with which the code begins, by the variables whose slots they go to."""
        frame = cut.frame
        return {
            name: self.keep(frame.cells[name])
            for name in sorted(remade_cells(cut.origin))
            if frame.cells[name] is not frame.own_cells.get(name)
        }

    def _keep_inner(self, cuts: list[CutFrame], kept: list[dict[str, str]]) -> dict[str, str]:
        """The pieces for the frames below the outermost: functions and their arguments."""
        inner: dict[str, str] = {}
        for index in range(len(cuts) - 1, 0, -1):
            cut, names = cuts[index], {**kept[index], **inner}
            place = (cut.origin, cut.position, cut.names, cut.layout, cut.steps)
            code, key = stub_code(self.tracer.request.resumes, place, inner=bool(inner))
            for name in code.co_varnames[: code.co_argcount]:
                self.emit("LOAD_FAST", names[name])
            self.emit("BUILD_TUPLE", code.co_argcount)
            arguments = self.temporary()
            self.emit("STORE_FAST", arguments)
            self._function(code, key, cut.frame)
            function = self.temporary()
            self.emit("STORE_FAST", function)
            inner = {INNER: function, INNER_ARGS: arguments}
        return inner

    def _function(self, code: CodeType, key: Hashable, frame: Frame) -> None:
        def load_code() -> None:
            if resume_point(self.code) is None:
                self.constant(code)
            else:
                self.null_function(code_lookup(self.tracer.request.resumes, key))
                self.call(0)

        cells = [frame.cells.get(name.removeprefix(CELL)) or CellValue() for name in code.co_freevars]
        self.new_function(load_code, frame.namespace, code.co_name, cells=cells)

    def _forget(self, frame: Frame, targets: dict[str, str]) -> None:
        """Drop temporaries, and arguments that the program has deleted."""
        for number in range(1, self._temporaries + 1):
            self.emit("DELETE_FAST", f"__armature_{number}")
        for position in range(len(self.outputs)):
            self.emit("DELETE_FAST", output_name(position))
        for name in self.tracer.request.locals:
            plain = name not in (*self.code.co_cellvars, *self.code.co_freevars, *targets)
            if plain and name not in frame.variables and name not in frame.lazy:
                self.emit("DELETE_FAST", name)


def calls_directly(tracer: Tracing, place: Location, called: CodeType) -> bool:
    """Whether a frame of the code `called` is the entire effect of the call at a location."""
    inst = instructions_of(place.code)[place.position]
    if inst.opname not in CALLS or place.callee is None or called.co_flags & SUSPENDED:
        return False
    return place.callee.direct_code(tracer) is called
