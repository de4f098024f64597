"""Objects whose class derives from a builtin type: the value of their builtin part."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from armature.frame.sources import MemberSource, Source
from armature.introspection import is_written_in_c
from armature.trace.semantics.slots import AS_ARGUMENT
from armature.trace.values.base import Value, Write
from armature.trace.values.classes import overrides
from armature.trace.values.constant import ConstantValue
from armature.trace.values.mapping import DictValue
from armature.trace.values.methods import ContainerValue
from armature.trace.values.sequence import ListValue, TupleValue

if TYPE_CHECKING:
    from armature.trace.values.base import Rebuilding, Tracing

# Subclasses first.
DICTS: tuple[type, ...] = (collections.defaultdict, collections.OrderedDict, dict)
SCALARS: tuple[type, ...] = (int, float, complex, str, bytes)
FILLED: tuple[type, ...] = (*DICTS, list, set)  # types whose objects are made empty and then filled
COPIES = frozenset({"copy", "__copy__", "__or__", "__ror__"})
KEEPS = frozenset({"format", "format_map", "partition", "rpartition", "__mod__"})  # the object itself, at times
BASES: tuple[type, ...] = (*DICTS, list, set, frozenset, tuple, *SCALARS)


@functools.lru_cache(maxsize=4096)
def base_of(cls: type) -> type | None:
    """The builtin container or scalar that a class of the program derives from. None if a C class is in between, as for
    numpy's scalars, because it may change the type's behaviour."""
    found = next((base for base in BASES if issubclass(cls, base)), None)
    between = cls.__mro__[: cls.__mro__.index(found)] if found is not None else ()
    return None if any(is_written_in_c(base) for base in between) else found


def derives(value: Value) -> bool:
    """Whether the object's class derives from a builtin type, whose value is known."""
    return value.base is not None


def native(value: Value) -> Value:
    """The value of the object's builtin part, if its class derives from a builtin type; else the value itself."""
    return value.base if value.base is not None else value


def makes_its_own(value: Value, method: str) -> bool:
    """Whether the class of the object that a method returns is decided in C: special dicts call the class to make a
    copy, and a text that has nothing to change may return itself."""
    if isinstance(value.base, DictValue):
        return value.base.kind is not dict and method in COPIES
    return (
        isinstance(value.base, ConstantValue) and issubclass(value.base.python_type(), (str, bytes)) and method in KEEPS
    )


def asks_the_program(value: Value, *names: str) -> bool:
    """Whether a class derived from a builtin type overrides a method that C code may call (one of `names`, if
    given)."""
    cls = value.python_type()
    return value.base is not None and any(overrides(cls, name) for name in names or AS_ARGUMENT)


def base_value(obj: Any, kind: type, source: Source, owner: Value, tracer: Tracing) -> Value:
    """The value of the builtin part of an object of the program; guarded."""
    if kind is dict:
        return DictValue({}, kind, obj, owner, source=source)
    return READERS[kind](tracer, obj, kind, source)


def _items(tracer: Tracing, obj: Any, kind: Any, source: Source) -> list[Value]:
    if overrides(type(obj), "__len__"):
        tracer.graph_break("sequence-with-own-length", type=type(obj).__qualname__)
    length = kind.__len__(obj)
    tracer.guards.length(source, length)
    return [tracer.objects.wrap(kind.__getitem__(obj, i), MemberSource(source, kind, i)) for i in range(length)]


def _list(tracer: Tracing, obj: Any, kind: Any, source: Source) -> Value:
    return ListValue(_items(tracer, obj, kind, source), source=source)


def _tuple(tracer: Tracing, obj: Any, kind: Any, source: Source) -> Value:
    return TupleValue(_items(tracer, obj, kind, source), source=source)


def _scalar(tracer: Tracing, obj: Any, kind: Any, source: Source) -> Value:
    if overrides(type(obj), "__eq__"):
        tracer.graph_break("number-with-own-equality", type=type(obj).__qualname__)
    tracer.guards.equal(source, obj)
    return ConstantValue(PLAIN[kind](obj))


READERS: dict[type, Callable[..., Value]] = {
    list: _list,
    tuple: _tuple,
    **dict.fromkeys(SCALARS, _scalar),
}


# Converts an object of a derived class to an equal one of the builtin type itself.
PLAIN: dict[type, Callable[[Any], object]] = {
    int: int.__pos__,
    float: float.__pos__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda obj: bytes.__getitem__(obj, slice(None)),
}


def make(out: Rebuilding, cls: type, kind: Any, base: Value) -> None:
    """Push a new object of a class that derives from a builtin type; a mutable one is empty."""
    out.null_function(kind.__new__)
    out.load(out.tracer.as_value(cls))
    if kind in FILLED:
        out.call(1)
    else:
        out.load(base.filling(out) if isinstance(base, ContainerValue) else base)
        out.call(2)


def fill(out: Rebuilding, owner: Value, base: Value) -> list[Write]:
    """The writes that fill a new object with its contents, by methods of its builtin type."""
    return base.fill(out, owner) if isinstance(base, ContainerValue) else []
