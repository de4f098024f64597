"""What Python 3.13 adds or changes, on top of 3.12."""

from __future__ import annotations

from armature.trace.frame_state import Frame
from armature.trace.instructions import Instruction
from armature.trace.opcodes.call import call_with, check_stars, keywords, set_function_part
from armature.trace.opcodes.names import load_variable
from armature.trace.opcodes.operators import compare_op, to_bool
from armature.trace.opcodes.table import opcode
from armature.trace.semantics.iteration import advance
from armature.trace.values.base import NULL, OF_METHOD, Null
from armature.trace.values.function import ClosureValue

TO_BOOL = 16  # of COMPARE_OP: its result is made True or False


@opcode("LOAD_GLOBAL")
def load_global(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(frame.tracer.names.load_global(frame, str(inst.argval)))
    if inst.arg & 1:
        frame.stack.append(NULL)


@opcode("LOAD_ATTR")
def load_attr(frame: Frame, inst: Instruction) -> None:
    owner = frame.stack.pop()
    frame.stack.append(owner.get_attribute(frame.tracer, str(inst.argval)))
    if inst.arg & 1:
        frame.stack.append(OF_METHOD)


@opcode("LOAD_SUPER_ATTR")
def load_super_attr(frame: Frame, inst: Instruction) -> None:
    function, cls, owner = frame.popn(3)
    made = function.call(frame.tracer, (cls, owner), {})
    frame.stack.append(made.get_attribute(frame.tracer, str(inst.argval)))
    if inst.arg & 1:
        frame.stack.append(NULL)


@opcode("CALL")
def call(frame: Frame, inst: Instruction) -> None:
    args = frame.popn(inst.arg)
    owner = frame.stack.pop()
    function = frame.stack.pop()
    if not isinstance(owner, Null):
        args.insert(0, owner)
    call_with(frame, function, args, ())


@opcode("CALL_KW")
def call_kw(frame: Frame, inst: Instruction) -> None:
    names = frame.stack.pop().as_constant()
    args = frame.popn(inst.arg)
    owner = frame.stack.pop()
    function = frame.stack.pop()
    if not isinstance(owner, Null):
        args.insert(0, owner)
    call_with(frame, function, args, tuple(str(name) for name in names))  # type: ignore[attr-defined]


@opcode("CALL_FUNCTION_EX")
def call_function_ex(frame: Frame, inst: Instruction) -> None:
    named = frame.stack.pop() if inst.arg & 1 else None
    given = frame.stack.pop()
    check_stars(frame, given, named)
    args = list(frame.tracer.python.taken(given))
    owner = frame.stack.pop()
    function = frame.stack.pop()
    if not isinstance(owner, Null):
        args.insert(0, owner)
    kwargs = keywords(frame, named)
    frame.callee = function
    frame.stack.append(function.call(frame.tracer, args, kwargs))


@opcode("MAKE_FUNCTION")
def make_function(frame: Frame, inst: Instruction) -> None:
    code = frame.stack.pop().as_constant()
    frame.stack.append(ClosureValue(code, frame.namespace))  # type: ignore[arg-type]


@opcode("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(frame: Frame, inst: Instruction) -> None:
    made = frame.stack.pop()
    if isinstance(made, ClosureValue):
        set_function_part(frame, made, inst.arg, frame.stack.pop())
    frame.stack.append(made)


def load_slot(frame: Frame, name: str) -> None:
    """Push a local variable, or the cell itself where a closure is about to be made (LOAD_CLOSURE is gone)."""
    cell = frame.cells.get(name)
    if cell is None:
        load_variable(frame, name)
    else:
        frame.stack.append(cell)


@opcode("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(frame: Frame, inst: Instruction) -> None:
    value = frame.variables.get(inst.argval)  # type: ignore[call-overload]
    if value is None:
        load_slot(frame, str(inst.argval))
    else:
        frame.stack.append(value)


@opcode("COMPARE_OP")
def compare(frame: Frame, inst: Instruction) -> None:
    compare_op(frame, inst)
    if inst.arg & TO_BOOL:  # the jump that follows takes True and False only, and may run by itself
        to_bool(frame, inst)


@opcode("FOR_ITER")
def for_iter(frame: Frame, inst: Instruction) -> None:
    try:
        value = advance(frame.tracer, frame.stack[-1])
    except StopIteration:
        frame.stack.pop()
        frame.position = inst.target + 2  # END_FOR and POP_TOP are for iterators that CPython inlines
    else:
        frame.stack.append(value)


@opcode("END_FOR")
def end_for(frame: Frame, inst: Instruction) -> None:
    frame.pop()
