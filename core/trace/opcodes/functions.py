"""Opcodes that call and make functions."""

from __future__ import annotations

from types import CodeType
from typing import Any

from armature.trace.base import NULL, Null, Value
from armature.trace.bytecode.instructions import Instruction
from armature.trace.bytecode.versions import NULL_FIRST
from armature.trace.frame_state import Frame
from armature.trace.opcodes.table import opcode
from armature.trace.values.function import CellValue, ClosureValue
from armature.trace.values.mapping import items_of_mapping


def call_with(frame: Frame, function: Value, args: list[Value], names: tuple[str, ...]) -> None:
    """Call a value and push the result; `names` are the names of the last arguments."""
    if names:
        split = len(args) - len(names)
        kwargs = dict(zip(names, args[split:]))
        args = args[:split]
    else:
        kwargs = {}
    frame.callee = function
    frame.stack.append(function.call(frame.tracer, args, kwargs))


def push_callable(frame: Frame, function: Value, null: Null = NULL) -> None:
    """Push a function to be called, with the value (NULL or self) that goes in front of its arguments."""
    frame.stack += callable_slots(function, null)


def callable_slots(function: Any, null: Any) -> tuple[Any, Any]:
    """A function to be called and the NULL beside it, in the order in which they are pushed."""
    return (null, function) if NULL_FIRST else (function, null)


def pop_callable(frame: Frame, args: list[Value]) -> Value:
    """Pop the function of a call; if it was looked up as a method in two parts, prepend the object to the arguments."""
    second = frame.stack.pop()
    first = frame.stack.pop()
    function, owner = (second, first) if NULL_FIRST and isinstance(first, Null) else (first, second)
    if not isinstance(owner, Null):
        args.insert(0, owner)
    return function


@opcode("KW_NAMES")
def kw_names(frame: Frame, inst: Instruction) -> None:
    frame.keyword_names = inst.argval


@opcode("CALL")
def call(frame: Frame, inst: Instruction) -> None:
    args = frame.popn(inst.arg)
    function = pop_callable(frame, args)
    names, frame.keyword_names = frame.keyword_names, ()
    call_with(frame, function, args, names)


@opcode("CALL_FUNCTION_EX")
def call_function_ex(frame: Frame, inst: Instruction) -> None:
    named = frame.stack.pop() if inst.arg & 1 else None
    given = frame.stack.pop()
    check_stars(frame, given, named)
    args = list(frame.tracer.python.collect_items(given))
    function = pop_callable(frame, args)
    kwargs = keywords(frame, named)
    frame.callee = function
    frame.stack.append(function.call(frame.tracer, args, kwargs))


def check_stars(frame: Frame, given: Value, named: Value | None) -> None:
    """Break the graph where `*` or `**` has the wrong kind of operand, because the error names the function."""
    for value, protocol in ((given, "__iter__"), (named, "keys")):
        if value is not None and not hasattr(value.python_type(), protocol):
            frame.tracer.graph_break("star-arguments", type=value.describe())


def keywords(frame: Frame, named: Value | None) -> dict[str, Value]:
    """The keyword arguments in a `**` mapping."""
    if named is None:
        return {}
    found: dict[str, Value] = {}
    for key, value in items_of_mapping(frame.tracer, named):
        if not issubclass(key.python_type(), str):
            frame.tracer.raise_error(TypeError, "keywords must be strings")
        found[str(key.as_constant())] = value
    return found


@opcode("MAKE_FUNCTION")
def make_function(frame: Frame, inst: Instruction) -> None:
    code = frame.stack.pop().as_constant()
    made = ClosureValue(code if isinstance(code, CodeType) else frame.code, frame.namespace)
    for flag in (8, 4, 2, 1):
        if inst.arg & flag:
            set_function_part(frame, made, flag, frame.stack.pop())
    frame.stack.append(made)


def set_function_part(frame: Frame, made: ClosureValue, flag: int, value: Value) -> None:
    """Give a function its closure (8), annotations (4), keyword defaults (2) or defaults (1)."""
    if flag == 8:
        made.cells = tuple(cell for cell in frame.tracer.unpack(value) if isinstance(cell, CellValue))
    elif flag == 4:
        made.annotations = value
    elif flag == 2:
        made.keyword_defaults = keywords(frame, value)
    else:
        made.defaults = tuple(frame.tracer.unpack(value))
