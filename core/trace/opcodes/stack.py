"""Opcodes that only move values, or that tracing ignores."""

from __future__ import annotations

from armature.trace.base import NULL
from armature.trace.bytecode.instructions import Instruction
from armature.trace.frame_state import Frame
from armature.trace.opcodes.table import opcode


@opcode("NOP", "CACHE", "EXTENDED_ARG", "PRECALL", "COPY_FREE_VARS", "NOT_TAKEN")
def nothing(frame: Frame, inst: Instruction) -> None:
    return None


@opcode("POP_TOP")
def pop_top(frame: Frame, inst: Instruction) -> None:
    frame.stack.pop()


@opcode("PUSH_NULL")
def push_null(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(NULL)


@opcode("COPY")
def copy(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(frame.stack[-inst.arg])


@opcode("SWAP")
def swap(frame: Frame, inst: Instruction) -> None:
    stack = frame.stack
    stack[-1], stack[-inst.arg] = stack[-inst.arg], stack[-1]


@opcode("RETURN_VALUE")
def return_value(frame: Frame, inst: Instruction) -> None:
    frame.result = frame.stack.pop()
    frame.done = True
