"""What Python 3.12 adds or changes."""

from __future__ import annotations

from armature.trace.base import NULL, Null
from armature.trace.bytecode.instructions import STOPITERATION_ERROR, Instruction
from armature.trace.frame_state import Frame
from armature.trace.opcodes.functions import push_callable
from armature.trace.opcodes.names import pop_variable
from armature.trace.opcodes.table import opcode
from armature.trace.values.function import CellValue
from armature.trace.values.sequence import TupleValue

LIST_TO_TUPLE = 6
UNARY_POSITIVE = 5


@opcode("RETURN_CONST")
def return_const(frame: Frame, inst: Instruction) -> None:
    frame.result = frame.tracer.names.constant(inst.argval)
    frame.done = True


@opcode("LOAD_SUPER_ATTR")
def load_super_attr(frame: Frame, inst: Instruction) -> None:
    function, cls, owner = frame.popn(3)
    value = function.call(frame.tracer, (cls, owner), {}).get_attribute(frame.tracer, str(inst.argval))
    if inst.arg & 1:
        push_callable(frame, value)
    else:
        frame.push(value)


@opcode("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(frame: Frame, inst: Instruction) -> None:
    name = str(inst.argval)
    value = pop_variable(frame, name)
    if value is None:
        value = frame.cells.pop(name, None)
    frame.stack.append(NULL if value is None else value)


@opcode("STORE_FAST")
def store_fast(frame: Frame, inst: Instruction) -> None:
    """Store a variable, or restore what LOAD_FAST_AND_CLEAR took from it: its value, its cell or nothing."""
    name = str(inst.argval)
    value = frame.stack.pop()
    frame.lazy.pop(name, None)
    frame.variables.pop(name, None)
    frame.cells.pop(name, None)  # a cell made by an inlined comprehension
    if isinstance(value, CellValue) and name.removeprefix(".") in (*frame.code.co_cellvars, *frame.code.co_freevars):
        frame.cells[name] = value
    elif not isinstance(value, Null):
        frame.variables[name] = value


@opcode("END_FOR")
def end_for(frame: Frame, inst: Instruction) -> None:
    frame.popn(2)


@opcode("END_SEND")
def end_send(frame: Frame, inst: Instruction) -> None:
    value = frame.pop()
    frame.pop()
    frame.push(value)


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
