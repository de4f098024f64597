"""Objects whose class derives from a builtin type, with the value of their builtin part."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

import attrs

from armature.frame.sources import CallSource, MemberSource, Source
from armature.introspection import class_member
from armature.trace.base import Value, Write, raise_lacking
from armature.trace.slots import AS_ARGUMENT, LOOKUPS
from armature.trace.values.classes import ClassMember, inherits, overrides, rely_on_class
from armature.trace.values.constant import ConstantValue
from armature.trace.values.mapping import DictValue
from armature.trace.values.methods import ContainerValue
from armature.trace.values.sequence import ListValue, TupleValue
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.trace.base import Rebuilding, Tracing, TypeRules

SCALARS: tuple[type, ...] = (int, float, complex, str, bytes)
UNREAD = ConstantValue(None)  # the builtin part of an object while its items are read, one of which may be the object


@attrs.define(eq=False)
class DerivedObjectValue(UserObjectValue):
    """An object whose class derives from a builtin type. base: the value of its builtin part."""

    base: Value = attrs.field(kw_only=True)

    def contents(self) -> object:
        return (super().contents(), self.base)

    def as_constant(self) -> Any:
        return super().as_constant() if self.base.mutable or overrides_method_for_c(self) else self.base.as_constant()

    def as_argument(self, tracer: Tracing) -> object:
        return self._plain(tracer).as_argument(tracer)

    def as_fake(self, tracer: Tracing) -> object:
        return self._plain(tracer).as_fake(tracer)

    def _plain(self, tracer: Tracing) -> Value:
        """The builtin part of the object. Breaks the graph where C code may call a method of the program."""
        rely_on_class(tracer, self.cls, *AS_ARGUMENT, *LOOKUPS)
        if overrides_method_for_c(self) or any(overrides(self.cls, name) for name in LOOKUPS):
            tracer.graph_break("argument-of-derived-class", type=self.describe())
        return self.base

    def key(self, tracer: Tracing) -> Hashable:
        rely_on_class(tracer, self.cls, "__hash__", "__eq__")
        if not inherits(self.cls, "__hash__", self.base.python_type()):
            return super().key(tracer)
        if class_member(self.cls, "__hash__") is None:
            raise_lacking(tracer, self, "__hash__")
        return self.base.key(tracer)

    def described(self, tracer: Tracing, found: ClassMember, name: str) -> Value:
        if isinstance(found.obj, MemberDescriptorType) and self.slot_source(name) is None and self.of_base(found.obj):
            return self.base.get_attribute(tracer, name)
        return super().described(tracer, found, name)

    def of_base(self, descriptor: Any) -> bool:
        return issubclass(self.base.python_type(), descriptor.__objclass__)

    def operate_in_c(self, tracer: Tracing, name: str) -> Value | None:
        return None  # the builtin part carries out the operation

    def allocate(self, out: Rebuilding) -> None:
        kind: Any = self.base.python_type()
        out.null_function(kind.__new__)
        out.load(out.tracer.as_value(self.cls))
        if kind.__hash__ is None:  # mutable: made empty, and then filled
            out.call(1)
        else:
            out.load(self.base.filling(out) if isinstance(self.base, ContainerValue) else self.base)
            out.call(2)

    def fill(self, out: Rebuilding) -> list[Write]:
        return self.base.fill(out, self) if isinstance(self.base, ContainerValue) else []


def derives(value: Value) -> bool:
    """Whether the object's class derives from a builtin type, whose value is known."""
    return value.base is not None


def native(value: Value) -> Value:
    """The value of the object's builtin part, if its class derives from a builtin type; else the value itself."""
    return value.base if value.base is not None else value


def chooses_class_in_c(types: TypeRules, value: Value, method: str) -> bool:
    """Whether the class of the object that a method returns is decided in C."""
    return value.base is not None and types.chooses_class(value.base.python_type(), method)


def overrides_method_for_c(value: Value, *names: str) -> bool:
    """Whether a class derived from a builtin type overrides a method (one of `names`) that C code may call."""
    cls = value.python_type()
    return value.base is not None and any(overrides(cls, name) for name in names or AS_ARGUMENT)


def _items(tracer: Tracing, obj: Any, kind: Any, source: Source) -> list[Value]:
    if overrides(type(obj), "__len__"):
        tracer.graph_break("sequence-with-own-length", type=type(obj).__qualname__)
    length = kind.__len__(obj)
    tracer.guards.length(source, length)
    return [tracer.objects.wrap(kind.__getitem__(obj, i), MemberSource(source, kind, i)) for i in range(length)]


def _scalar(obj: Any, kind: type, source: Source, owner: Value, tracer: Tracing) -> Value:
    held = PLAIN[kind](obj)
    if overrides(type(obj), "__eq__"):  # the guard compares what it holds
        source, obj = CallSource(source, PLAIN[kind], f"{kind.__name__}({{}})"), held
    tracer.guards.equal(source, obj)
    return ConstantValue(held)


# The values of the builtin part of an object of the program, guarded; as `ValueType.base` of plugins' types.
READERS: dict[type, Callable[[Any, type, Source, Value, Tracing], Value]] = {
    dict: lambda obj, kind, source, owner, tracer: DictValue({}, kind, obj, owner, source=source),
    list: lambda obj, kind, source, owner, tracer: ListValue(_items(tracer, obj, kind, source), source=source),
    tuple: lambda obj, kind, source, owner, tracer: TupleValue(_items(tracer, obj, kind, source), source=source),
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
