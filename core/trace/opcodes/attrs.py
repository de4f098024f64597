"""Opcodes of attributes."""

from __future__ import annotations

from armature.trace.frame_state import Frame
from armature.trace.instructions import Instruction
from armature.trace.opcodes.table import opcode
from armature.trace.values.base import OF_METHOD


@opcode("LOAD_ATTR")
def load_attr(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(frame.stack.pop().get_attribute(frame.tracer, str(inst.argval)))


@opcode("LOAD_METHOD")
def load_method(frame: Frame, inst: Instruction) -> None:
    owner = frame.stack.pop()
    frame.stack.append(OF_METHOD)
    frame.stack.append(owner.get_attribute(frame.tracer, str(inst.argval)))


@opcode("STORE_ATTR")
def store_attr(frame: Frame, inst: Instruction) -> None:
    owner = frame.stack.pop()
    owner.set_attribute(frame.tracer, str(inst.argval), frame.stack.pop())


@opcode("DELETE_ATTR")
def delete_attr(frame: Frame, inst: Instruction) -> None:
    frame.stack.pop().delete_attribute(frame.tracer, str(inst.argval))
