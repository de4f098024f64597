"""What Python 3.13 adds or changes, on top of 3.12."""

from __future__ import annotations

from armature.trace.bytecode.instructions import Instruction
from armature.trace.frame_state import Frame
from armature.trace.opcodes.functions import call, set_function_part
from armature.trace.opcodes.names import load_variable
from armature.trace.opcodes.operators import compare_op, to_bool
from armature.trace.opcodes.table import opcode
from armature.trace.values.function import ClosureValue

TO_BOOL = 16  # flag in the argument of COMPARE_OP: convert the result to a bool


@opcode("CALL_KW")
def call_kw(frame: Frame, inst: Instruction) -> None:
    frame.keyword_names = frame.stack.pop().as_constant()
    call(frame, inst)


@opcode("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(frame: Frame, inst: Instruction) -> None:
    made = frame.stack.pop()
    if isinstance(made, ClosureValue):
        set_function_part(frame, made, inst.arg, frame.stack.pop())
    frame.stack.append(made)


@opcode("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(frame: Frame, inst: Instruction) -> None:
    """Push a local variable, or its cell if a closure is about to be made (3.13 has no LOAD_CLOSURE)."""
    value = frame.variables.get(inst.argval, frame.cells.get(inst.argval))
    if value is None:
        load_variable(frame, str(inst.argval))
    else:
        frame.stack.append(value)


@opcode("COMPARE_OP")
def compare(frame: Frame, inst: Instruction) -> None:
    compare_op(frame, inst)
    if inst.arg & TO_BOOL:  # the jump that follows takes True and False only, and may run on its own after a break
        to_bool(frame, inst)


@opcode("END_FOR")
def end_for(frame: Frame, inst: Instruction) -> None:
    frame.pop()
