"""Opcodes that jump and loop."""

from __future__ import annotations

from armature.trace.base import Value
from armature.trace.bytecode.instructions import Instruction
from armature.trace.bytecode.versions import LOOP_END
from armature.trace.frame_state import Frame
from armature.trace.opcodes.assertions import truth
from armature.trace.opcodes.table import opcode


@opcode("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def jump(frame: Frame, inst: Instruction) -> None:
    frame.jump(inst.target)


@opcode("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_IF_TRUE")
def pop_jump_if_true(frame: Frame, inst: Instruction) -> None:
    if truth(frame, frame.stack.pop(), inst, frame.position):
        frame.jump(inst.target)


@opcode("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_IF_FALSE")
def pop_jump_if_false(frame: Frame, inst: Instruction) -> None:
    if not truth(frame, frame.stack.pop(), inst, frame.position):
        frame.jump(inst.target)


def is_none(value: Value) -> bool:
    """Whether a value is None."""
    return value.is_constant and value.python_type() is type(None)


@opcode("POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_IF_NONE")
def pop_jump_if_none(frame: Frame, inst: Instruction) -> None:
    if is_none(frame.stack.pop()):
        frame.jump(inst.target)


@opcode("POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE", "POP_JUMP_IF_NOT_NONE")
def pop_jump_if_not_none(frame: Frame, inst: Instruction) -> None:
    if not is_none(frame.stack.pop()):
        frame.jump(inst.target)


@opcode("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def jump_or_pop(frame: Frame, inst: Instruction) -> None:
    if frame.stack[-1].truth(frame.tracer) is (inst.opname == "JUMP_IF_TRUE_OR_POP"):
        frame.jump(inst.target)
    else:
        frame.stack.pop()


@opcode("GET_ITER")
def get_iter(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(frame.tracer.python.iterator(frame.stack.pop()))


@opcode("FOR_ITER")
def for_iter(frame: Frame, inst: Instruction) -> None:
    try:
        value = frame.stack[-1].advance(frame.tracer)
    except StopIteration:
        frame.stack.pop()
        frame.jump(inst.target + len(LOOP_END))
    else:
        frame.stack.append(value)
