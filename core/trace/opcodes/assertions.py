"""Branches on tensors of which one side only raises: `assert x.min() > 0`, `if not valid.all(): raise ValueError(...)`.

Tracing assumes the other side, and the graph checks the assumption. If it is wrong, the frame reruns in eager mode,
where the program raises. So this is only for graphs after which a frame can rerun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from armature.torch_abi.effects import CHECK
from armature.torch_abi.memory import on_host
from armature.trace.errors import GraphBreak
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.trace.base import Value
    from armature.trace.bytecode.instructions import Instruction
    from armature.trace.frame_state import Frame

MOST = 200  # instructions up to the one that raises
ELSEWHERE = ("RETURN", "YIELD", "SEND", "RERAISE", "FOR_ITER", "END_FOR")
MESSAGE = "a tensor was not what a branch of the program asks for"


def truth(frame: Frame, value: Value, jump: Instruction, after: int) -> bool:
    """Whether a tested value is true. jump: the conditional jump that tests it; after: the position behind it."""
    if isinstance(value, TensorValue) and may_assume(frame, value):
        jumped, passed = raises(frame, jump.target), raises(frame, after)
        if jumped != passed:
            return assume(frame, value, jump.opname.endswith("IF_TRUE") is passed)
    return value.truth(frame.tracer)


def may_assume(frame: Frame, value: TensorValue) -> bool:
    """Whether the graph can check the value, and no handler of the program would catch the error."""
    tracer = frame.tracer
    inside = tracer.stack.atomic_depth or tracer.overrides.present or tracer.sizes.floats or tracer.precalls.calls
    if inside or value.fake.numel() != 1 or not on_host(value.fake):
        return False
    return not any(is_handled(each) for each in tracer.stack.frames)


def is_handled(frame: Frame) -> bool:
    """Whether the instruction that a frame is at is inside a `try`."""
    protection = frame.instructions[max(frame.position - 1, 0)].protection
    if protection is None:
        return False
    handler = frame.instructions[protection.target : protection.target + 2]
    return all(inst.opname != "WITH_EXCEPT_START" for inst in handler)


def raises(frame: Frame, position: int) -> bool:
    """Whether the instructions from a position on do nothing but raise."""
    for inst in frame.instructions[position : position + MOST]:
        if inst.opname == "RAISE_VARARGS":
            return True
        if inst.target >= 0 or inst.opname.startswith(ELSEWHERE):
            return False
    return False


def assume(frame: Frame, value: TensorValue, wanted: bool) -> bool:
    """Assume that a tensor is true or false, and check it in the graph."""
    tracer = frame.tracer
    try:
        return value.truth(tracer)  # it is known after all
    except GraphBreak as stop:  # the break to report if the check can't be made
        stop.assumed = True
        tracer.ending.breaks.append(stop)
    condition = tracer.graph.call("bool", (value,), {})
    if not wanted:
        condition = tracer.graph.call(torch.logical_not, (condition,), {})
    tracer.graph.call(CHECK, (condition, tracer.constant(MESSAGE)), {})
    return wanted
