"""Opcodes of operators, comparisons and subscripts."""

from __future__ import annotations

from armature.trace.bytecode.instructions import Instruction
from armature.trace.frame_state import Frame
from armature.trace.opcodes.assertions import truth
from armature.trace.opcodes.table import opcode
from armature.trace.semantics.operators import delete_item, set_item
from armature.trace.slots import OPERATORS
from armature.trace.values.slices import SliceValue

BINARY = tuple(OPERATORS)  # indexed by the argument of BINARY_OP; the in-place forms follow
UNARY = {"UNARY_NEGATIVE": "neg", "UNARY_POSITIVE": "pos", "UNARY_INVERT": "invert"}


@opcode("BINARY_OP")
def binary_op(frame: Frame, inst: Instruction) -> None:
    stack = frame.stack
    right = stack.pop()
    left = stack.pop()
    if inst.arg < len(BINARY):
        stack.append(frame.tracer.python.operate(BINARY[inst.arg], left, right))
    elif inst.arg < 2 * len(BINARY):
        stack.append(frame.tracer.python.operate_in_place(BINARY[inst.arg - len(BINARY)], left, right))
    else:
        stack.append(left.get_item(frame.tracer, right))


@opcode(*UNARY)
def unary(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(frame.tracer.python.operate_unary(UNARY[inst.opname], frame.stack.pop()))


@opcode("UNARY_NOT")
def unary_not(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(frame.tracer.constant(not frame.stack.pop().truth(frame.tracer)))


@opcode("TO_BOOL")
def to_bool(frame: Frame, inst: Instruction) -> None:
    value, asks = frame.stack.pop(), frame.instructions[frame.position]
    if asks.opname.startswith("POP_JUMP_IF"):
        found = truth(frame, value, asks, frame.position + 1)
    else:
        found = value.truth(frame.tracer)
    frame.stack.append(frame.tracer.constant(found))


@opcode("COMPARE_OP")
def compare_op(frame: Frame, inst: Instruction) -> None:
    stack = frame.stack
    right = stack.pop()
    left = stack.pop()
    stack.append(frame.tracer.python.compare(str(inst.argval), left, right))


@opcode("IS_OP")
def is_op(frame: Frame, inst: Instruction) -> None:
    stack = frame.stack
    right = stack.pop()
    left = stack.pop()
    stack.append(frame.tracer.constant(frame.tracer.python.identical(left, right) != bool(inst.arg)))


@opcode("CONTAINS_OP")
def contains_op(frame: Frame, inst: Instruction) -> None:
    stack = frame.stack
    container = stack.pop()
    item = stack.pop()
    stack.append(frame.tracer.constant(container.contains(frame.tracer, item) != bool(inst.arg)))


@opcode("BINARY_SUBSCR")
def binary_subscr(frame: Frame, inst: Instruction) -> None:
    stack = frame.stack
    key = stack.pop()
    stack.append(stack.pop().get_item(frame.tracer, key))


@opcode("STORE_SUBSCR")
def store_subscr(frame: Frame, inst: Instruction) -> None:
    value, container, key = frame.popn(3)
    set_item(frame.tracer, container, key, value)


@opcode("DELETE_SUBSCR")
def delete_subscr(frame: Frame, inst: Instruction) -> None:
    container, key = frame.popn(2)
    delete_item(frame.tracer, container, key)


@opcode("BINARY_SLICE")
def binary_slice(frame: Frame, inst: Instruction) -> None:
    container, start, stop = frame.popn(3)
    window = SliceValue((start, stop, frame.tracer.constant(None)))
    frame.push(container.get_item(frame.tracer, window))


@opcode("STORE_SLICE")
def store_slice(frame: Frame, inst: Instruction) -> None:
    value, container, start, stop = frame.popn(4)
    window = SliceValue((start, stop, frame.tracer.constant(None)))
    set_item(frame.tracer, container, window, value)
