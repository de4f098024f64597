"""Opcodes of attributes."""

from __future__ import annotations

from armature.trace.base import OF_METHOD
from armature.trace.bytecode.instructions import Instruction, loads_method
from armature.trace.frame_state import Frame
from armature.trace.opcodes.functions import push_callable
from armature.trace.opcodes.table import opcode


@opcode("LOAD_ATTR", "LOAD_METHOD")
def load_attr(frame: Frame, inst: Instruction) -> None:
    value = frame.stack.pop().get_attribute(frame.tracer, str(inst.argval))
    if loads_method(inst):
        push_callable(frame, value, OF_METHOD)
    else:
        frame.stack.append(value)


@opcode("STORE_ATTR")
def store_attr(frame: Frame, inst: Instruction) -> None:
    owner = frame.stack.pop()
    owner.set_attribute(frame.tracer, str(inst.argval), frame.stack.pop())


@opcode("DELETE_ATTR")
def delete_attr(frame: Frame, inst: Instruction) -> None:
    frame.stack.pop().delete_attribute(frame.tracer, str(inst.argval))
