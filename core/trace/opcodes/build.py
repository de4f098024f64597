"""Opcodes that build containers and strings, and take them apart."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from armature.trace.base import Value, type_name
from armature.trace.bytecode.instructions import Instruction
from armature.trace.errors import UserRaised
from armature.trace.frame_state import Frame
from armature.trace.opcodes.table import opcode
from armature.trace.values.mapping import DictValue, items_of_mapping
from armature.trace.values.sequence import ListValue, TupleValue
from armature.trace.values.slices import SliceValue
from armature.trace.values.streams import Steps


@opcode("BUILD_TUPLE")
def build_tuple(frame: Frame, inst: Instruction) -> None:
    frame.push(TupleValue(frame.popn(inst.arg)))


@opcode("BUILD_LIST")
def build_list(frame: Frame, inst: Instruction) -> None:
    frame.push(ListValue(frame.popn(inst.arg)))


@opcode("BUILD_SET")
def build_set(frame: Frame, inst: Instruction) -> None:
    made = frame.tracer.as_value(set).call(frame.tracer, (), {})
    for item in frame.popn(inst.arg):
        made.call_method(frame.tracer, "add", (item,), {})
    frame.push(made)


@opcode("BUILD_MAP", "BUILD_CONST_KEY_MAP")
def build_map(frame: Frame, inst: Instruction) -> None:
    keys = frame.tracer.unpack(frame.pop()) if inst.opname == "BUILD_CONST_KEY_MAP" else None
    items = frame.popn(2 * inst.arg if keys is None else inst.arg)
    made = DictValue({})
    for key, value in zip(items[::2], items[1::2]) if keys is None else zip(keys, items):
        made.set_item(frame.tracer, key, value)
    frame.push(made)


@opcode("BUILD_SLICE")
def build_slice(frame: Frame, inst: Instruction) -> None:
    parts = frame.popn(inst.arg)
    none = frame.tracer.constant(None)
    frame.push(SliceValue((parts[0], parts[1], parts[2] if inst.arg == 3 else none)))


@opcode("LIST_TO_TUPLE")
def list_to_tuple(frame: Frame, inst: Instruction) -> None:
    frame.push(TupleValue(frame.tracer.unpack(frame.pop())))


# Instructions that add members to a container on the stack, and the method that does the same.
ADDING = {"LIST_APPEND": "append", "SET_ADD": "add", "SET_UPDATE": "update"}


@opcode(*ADDING)
def add_members(frame: Frame, inst: Instruction) -> None:
    given = frame.pop()
    frame.stack[-inst.arg].call_method(frame.tracer, ADDING[inst.opname], (given,), {})


@opcode("LIST_EXTEND")
def list_extend(frame: Frame, inst: Instruction) -> None:
    more = frame.pop()
    kind = more.python_type()
    if not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
        frame.tracer.raise_error(TypeError, f"Value after * must be an iterable, not {type_name(kind)}")
    frame.stack[-inst.arg].call_method(frame.tracer, "extend", (more,), {})


@opcode("MAP_ADD")
def map_add(frame: Frame, inst: Instruction) -> None:
    key, value = frame.popn(2)
    frame.stack[-inst.arg].set_item(frame.tracer, key, value)


@opcode("DICT_UPDATE")
def dict_update(frame: Frame, inst: Instruction) -> None:
    more = frame.pop()
    made = frame.stack[-inst.arg]
    try:
        found = list(items_of_mapping(frame.tracer, more))
    except UserRaised as raised:
        if not issubclass(raised.value.python_type(), AttributeError):
            raise
        frame.tracer.raise_error(TypeError, f"'{type_name(more.python_type())}' object is not a mapping")
    for key, value in found:
        made.set_item(frame.tracer, key, value)


@opcode("DICT_MERGE")
def dict_merge(frame: Frame, inst: Instruction) -> None:
    more = frame.pop()
    made = frame.stack[-inst.arg]
    found = list(items_of_mapping(frame.tracer, more)) if hasattr(more.python_type(), "keys") else None
    # let eager raise: the error names the function
    if found is None or any(made.contains(frame.tracer, key) for key, _ in found):
        frame.tracer.graph_break("keywords-merged", type=more.describe())
    for key, value in found:
        made.set_item(frame.tracer, key, value)


@opcode("BUILD_STRING")
def build_string(frame: Frame, inst: Instruction) -> None:
    parts = frame.popn(inst.arg)
    frame.push(frame.tracer.python.builtin(str.join, frame.tracer.constant(""), ListValue(parts)))


def converted(frame: Frame, value: Value, conversion: int) -> Value:
    """`!s`, `!r` or `!a` applied to a value of an f-string."""
    if conversion == 0:
        return value
    return frame.tracer.python.builtin((str, repr, ascii)[conversion - 1], value)


def formatted(frame: Frame, value: Value, spec: Value | None) -> Value:
    """`format(value, spec)`."""
    return frame.tracer.python.builtin(format, value, *(() if spec is None else (spec,)))


@opcode("FORMAT_VALUE")
def format_value(frame: Frame, inst: Instruction) -> None:
    spec = frame.pop() if inst.arg & 4 else None
    frame.push(formatted(frame, converted(frame, frame.pop(), inst.arg & 3), spec))


@opcode("CONVERT_VALUE")
def convert_value(frame: Frame, inst: Instruction) -> None:
    frame.push(converted(frame, frame.pop(), inst.arg))


@opcode("FORMAT_SIMPLE", "FORMAT_WITH_SPEC")
def format_with_spec(frame: Frame, inst: Instruction) -> None:
    spec = frame.pop() if inst.opname == "FORMAT_WITH_SPEC" else None
    frame.push(formatted(frame, frame.pop(), spec))


def steps_of(frame: Frame, value: Value) -> tuple[Value, Iterator[Value]]:
    """Iterate over the right side of an unpacking assignment: the iterator, and its values, fetched lazily."""
    kind, tracer = value.python_type(), frame.tracer
    if not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
        tracer.raise_error(TypeError, f"cannot unpack non-iterable {type_name(kind)} object")
    made = TupleValue(tracer.unpack(value)) if value.plain_items or value.is_tensor else value
    iterator = tracer.python.iterator(made)
    return iterator, Steps(lambda: iterator.advance(tracer))


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(frame: Frame, inst: Instruction) -> None:
    _, steps = steps_of(frame, frame.pop())
    items = list(itertools.islice(steps, inst.arg))
    if len(items) < inst.arg:
        text = f"not enough values to unpack (expected {inst.arg}, got {len(items)})"
        frame.tracer.raise_error(ValueError, text)
    if next(steps, None) is not None:
        frame.tracer.raise_error(ValueError, f"too many values to unpack (expected {inst.arg})")
    frame.stack.extend(reversed(items))


@opcode("UNPACK_EX")
def unpack_ex(frame: Frame, inst: Instruction) -> None:
    before, after = inst.arg & 0xFF, inst.arg >> 8
    iterator, steps = steps_of(frame, frame.pop())
    items = list(itertools.islice(steps, before))
    if len(items) == before:
        items += frame.tracer.python.collect_items(iterator)
    if len(items) < before + after:
        text = f"not enough values to unpack (expected at least {before + after}, got {len(items)})"
        frame.tracer.raise_error(ValueError, text)
    tail = items[len(items) - after :]
    middle = ListValue(items[before : len(items) - after])
    frame.stack.extend(reversed([*items[:before], middle, *tail]))


@opcode("GET_LEN")
def get_len(frame: Frame, inst: Instruction) -> None:
    frame.push(frame.tracer.constant(frame.stack[-1].length(frame.tracer)))
