"""Opcodes of generators that the frame itself consumes."""

from __future__ import annotations

from armature.trace.base import Value
from armature.trace.bytecode.instructions import Instruction
from armature.trace.bytecode.versions import SEND_KEEPS_DELEGATE
from armature.trace.errors import UserRaised
from armature.trace.frame_state import Frame
from armature.trace.locations import locations_of
from armature.trace.opcodes.table import opcode
from armature.trace.values.classes import find_in_class
from armature.trace.values.iterator import GeneratorValue

DELEGATED = ("send", "throw", "close")


@opcode("RETURN_GENERATOR")
def return_generator(frame: Frame, inst: Instruction) -> None:
    made = GeneratorValue(frame, made_at=locations_of(frame.tracer.stack.frames[:-1]))
    frame.tracer.stack.generators.append(made)
    frame.result = made
    frame.paused = True


@opcode("YIELD_VALUE")
def yield_value(frame: Frame, inst: Instruction) -> None:
    frame.result = frame.pop()
    frame.paused = True


@opcode("GET_YIELD_FROM_ITER")
def get_yield_from_iter(frame: Frame, inst: Instruction) -> None:
    if isinstance(frame.stack[-1], GeneratorValue):
        return
    made = frame.tracer.python.iterator(frame.pop())
    if not isinstance(made, GeneratorValue) and any(find_in_class(made.python_type(), name) for name in DELEGATED):
        # CPython forwards sent values and exceptions to it, and calls `close` when the generator is dropped.
        frame.tracer.graph_break("yield-from-object", type=made.describe())
    frame.push(made)


@opcode("SEND")
def send(frame: Frame, inst: Instruction) -> None:
    value = frame.pop()
    receiver = frame.stack[-1]
    try:
        result = hand_on(frame, receiver, value)
    except StopIteration as end:
        if not SEND_KEEPS_DELEGATE:
            frame.pop()
        frame.push(end.value if end.value is not None else frame.tracer.constant(None))
        frame.position = inst.target
    else:
        frame.push(result)


def hand_on(frame: Frame, receiver: Value, value: Value) -> Value:
    """Send a value to the delegate of `yield from`, and return its answer. Raises StopIteration."""
    if isinstance(receiver, GeneratorValue):
        return receiver.send(frame.tracer, value)
    if not value.is_constant or value.as_constant() is not None:  # a plain iterator has no `send`
        frame.tracer.graph_break("send-to-iterator", type=receiver.describe())
    return receiver.advance(frame.tracer)


@opcode("CLEANUP_THROW")
def cleanup_throw(frame: Frame, inst: Instruction) -> None:
    error = frame.pop()
    frame.pop()
    receiver = frame.pop()
    if not issubclass(error.python_type(), StopIteration):
        frame.push(receiver)
        raise UserRaised(error)
    frame.push(frame.tracer.constant(None))
    frame.push(error.get_attribute(frame.tracer, "value"))
