"""What Python 3.12 adds or changes."""

from __future__ import annotations

from armature.trace.errors import UserRaised
from armature.trace.frame_state import Frame
from armature.trace.instructions import STOPITERATION_ERROR, Instruction
from armature.trace.opcodes.exceptions import reraise_star
from armature.trace.opcodes.generators import hand_on
from armature.trace.opcodes.names import cell_of
from armature.trace.opcodes.table import opcode
from armature.trace.semantics.builtin_types import TYPES
from armature.trace.semantics.iteration import advance
from armature.trace.values.base import NULL, OF_METHOD, Null
from armature.trace.values.classes import ClassValue
from armature.trace.values.function import CellValue
from armature.trace.values.sequence import TupleValue

LIST_TO_TUPLE = 6
UNARY_POSITIVE = 5
PREP_RERAISE_STAR = 1  # of the functions with two arguments


@opcode("RETURN_CONST")
def return_const(frame: Frame, inst: Instruction) -> None:
    frame.result = frame.tracer.names.constant(inst.argval)
    frame.done = True


@opcode("LOAD_ATTR")
def load_attr(frame: Frame, inst: Instruction) -> None:
    owner = frame.stack.pop()
    if inst.arg & 1:
        frame.stack.append(OF_METHOD)
    frame.stack.append(owner.get_attribute(frame.tracer, str(inst.argval)))


@opcode("LOAD_SUPER_ATTR")
def load_super_attr(frame: Frame, inst: Instruction) -> None:
    _, cls, owner = frame.popn(3)
    if not isinstance(cls, ClassValue):
        frame.tracer.graph_break("unsupported-operation", operation="super()", type=cls.describe())
    if inst.arg & 1:
        frame.stack.append(NULL)
    frame.stack.append(TYPES[super](frame.tracer, cls, owner).get_attribute(frame.tracer, str(inst.argval)))


@opcode("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(frame: Frame, inst: Instruction) -> None:
    name = str(inst.argval)
    lazy = frame.lazy.pop(name, None)
    value = frame.variables.pop(name, None)
    if value is None and lazy is not None:
        value = frame.tracer.wrap(*lazy)
    if value is None:
        value = frame.cells.pop(name, None)
    frame.stack.append(NULL if value is None else value)


@opcode("STORE_FAST")
def store_fast(frame: Frame, inst: Instruction) -> None:
    """Also puts back what LOAD_FAST_AND_CLEAR took from a variable: its value, its cell or nothing."""
    name = str(inst.argval)
    value = frame.stack.pop()
    frame.lazy.pop(name, None)
    frame.variables.pop(name, None)
    frame.cells.pop(name, None)  # one that an inlined comprehension made
    if isinstance(value, CellValue) and name.removeprefix(".") in (*frame.code.co_cellvars, *frame.code.co_freevars):
        frame.cells[name] = value
    elif not isinstance(value, Null):
        frame.variables[name] = value


@opcode("FOR_ITER")
def for_iter(frame: Frame, inst: Instruction) -> None:
    try:
        value = advance(frame.tracer, frame.stack[-1])
    except StopIteration:
        frame.stack.pop()
        frame.position = inst.target + 1  # END_FOR is for iterators that CPython inlines
    else:
        frame.stack.append(value)


@opcode("END_FOR")
def end_for(frame: Frame, inst: Instruction) -> None:
    frame.popn(2)


@opcode("END_SEND")
def end_send(frame: Frame, inst: Instruction) -> None:
    value = frame.pop()
    frame.pop()
    frame.push(value)


@opcode("SEND")
def send(frame: Frame, inst: Instruction) -> None:
    value = frame.pop()
    receiver = frame.stack[-1]
    try:
        result = hand_on(frame, receiver, value)
    except StopIteration as end:
        frame.push(end.value if end.value is not None else frame.tracer.constant(None))
        frame.position = inst.target
    else:
        frame.push(result)


@opcode("CALL_INTRINSIC_1")
def call_intrinsic_1(frame: Frame, inst: Instruction) -> None:
    value = frame.pop()
    if inst.arg == LIST_TO_TUPLE:
        frame.push(TupleValue(frame.tracer.unpack(value)))
    elif inst.arg == UNARY_POSITIVE:
        frame.push(frame.tracer.python.operate_unary("pos", value))
    elif inst.arg == STOPITERATION_ERROR:
        if issubclass(value.python_type(), StopIteration):
            frame.tracer.raise_error(RuntimeError, "generator raised StopIteration")
        frame.push(value)
    else:
        reason = f"intrinsic function {inst.argval}"
        frame.tracer.graph_break("untraced-opcode", opcode=inst.opname, reason=reason)


@opcode("CALL_INTRINSIC_2")
def call_intrinsic_2(frame: Frame, inst: Instruction) -> None:
    if inst.arg == PREP_RERAISE_STAR:
        raised = frame.tracer.unpack(frame.pop())
        frame.push(reraise_star(frame, frame.tracer.as_exception(frame.pop()), raised))
        return
    frame.tracer.graph_break("untraced-opcode", opcode=inst.opname, reason=f"intrinsic function {inst.argval}")


@opcode("MAKE_CELL")
def make_cell(frame: Frame, inst: Instruction) -> None:
    name = str(inst.argval)
    frame.cells.pop(name, None)
    cell = cell_of(frame, name)
    held = frame.variables.pop(name, None)
    lazy = frame.lazy.pop(name, None)
    cell.content = frame.tracer.wrap(*lazy) if held is None and lazy is not None else held


@opcode("RERAISE")
def reraise(frame: Frame, inst: Instruction) -> None:
    raise UserRaised(frame.pop())
