"""Opcodes of `match`."""

from __future__ import annotations

import collections.abc
from typing import TYPE_CHECKING

from armature.trace.base import Value
from armature.trace.bytecode.instructions import Instruction
from armature.trace.frame_state import Frame
from armature.trace.opcodes.table import opcode
from armature.trace.values.classes import ClassValue
from armature.trace.values.derived import native
from armature.trace.values.mapping import DictValue
from armature.trace.values.sequence import TupleValue

if TYPE_CHECKING:
    from armature.trace.base import Tracing

# Classes whose one positional pattern is the object itself.
SELF_MATCHED = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


@opcode("MATCH_SEQUENCE", "MATCH_MAPPING")
def match_collection(frame: Frame, inst: Instruction) -> None:
    kind, abc = frame.stack[-1].python_type(), collections.abc
    wanted = abc.Sequence if inst.opname == "MATCH_SEQUENCE" else abc.Mapping
    frame.push(frame.tracer.constant(issubclass(kind, wanted) and not issubclass(kind, (str, bytes, bytearray))))


@opcode("MATCH_KEYS")
def match_keys(frame: Frame, inst: Instruction) -> None:
    keys, subject = frame.stack[-1], frame.stack[-2]
    subject = native(subject)
    if not isinstance(subject, DictValue):
        frame.tracer.graph_break("match-mapping", type=subject.describe())
    found = [subject.find(frame.tracer, key) for key in frame.tracer.unpack(keys)]
    present = [value for value in found if value is not None]
    frame.push(TupleValue(present) if len(present) == len(found) else frame.tracer.constant(None))


@opcode("MATCH_CLASS")
def match_class(frame: Frame, inst: Instruction) -> None:
    subject, wanted, names = frame.popn(3)
    if not isinstance(wanted, ClassValue):
        frame.tracer.graph_break("match-class", type=wanted.describe())
    tracer = frame.tracer
    if not tracer.as_value(isinstance).call(tracer, (subject, wanted), {}).truth(tracer):
        frame.push(frame.tracer.constant(None))
        return
    frame.push(_attributes(frame, subject, wanted.cls, inst.arg, [str(n) for n in names.as_constant()]))


def _matches_itself(cls: type) -> bool:
    """Whether the one positional pattern of a class is the object."""
    return issubclass(cls, SELF_MATCHED) and not hasattr(cls, "__match_args__")


def positional_names(tracer: Tracing, cls: type, count: int, keyword: list[str]) -> list[str]:
    """The attributes that positional patterns match. Raises TypeError of the program."""
    known = getattr(cls, "__match_args__", ()) if count else ()
    if not isinstance(known, tuple) or not all(isinstance(name, str) for name in known):
        tracer.graph_break("match-args", type=cls.__qualname__)
    allowed = 1 if _matches_itself(cls) else len(known)
    if count > allowed:
        plural = "" if allowed == 1 else "s"
        text = f"{cls.__name__}() accepts {allowed} positional sub-pattern{plural} ({count} given)"
        tracer.raise_error(TypeError, text)
    twice = next((name for name in known[:count] if name in keyword), None)
    if twice is not None:
        tracer.raise_error(TypeError, f"{cls.__name__}() got multiple sub-patterns for attribute {twice!r}")
    return list(known[:count])


def _attributes(frame: Frame, subject: Value, cls: type, count: int, keyword: list[str]) -> Value:
    """The attributes that the patterns match, as a tuple; None when one is missing."""
    tracer = frame.tracer
    if count == 1 and _matches_itself(cls):
        first = [subject]
        names = keyword
    else:
        first = []
        names = [*positional_names(tracer, cls, count, keyword), *keyword]
    found = [tracer.python.attribute_or_none(subject, name) for name in names]
    present = [value for value in found if value is not None]
    if len(present) < len(found):
        return tracer.constant(None)
    return TupleValue([*first, *present])
