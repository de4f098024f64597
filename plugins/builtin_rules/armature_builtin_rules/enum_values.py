"""Enums: how their classes and members differ from other classes and constants."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from types import GetSetDescriptorType, MemberDescriptorType

import attrs

from armature.plugin_api import (
    NUMBER_SLOTS,
    Args,
    AttrSource,
    ClassMember,
    ClassValue,
    ConstantValue,
    DictValue,
    Kwargs,
    Source,
    Tracing,
    Value,
    ValueType,
    find_in_class,
    is_not_implemented,
    is_trusted,
    object_source,
    rely_on_class,
)

# Maps the public name of a member's attribute to the one that stores its value.
MEMBER_ATTRIBUTES = {"name": "_name_", "_name_": "_name_", "value": "_value_", "_value_": "_value_"}


def enum_attribute(tracer: Tracing, member: Value, value: enum.Enum, name: str) -> Value:
    """An attribute of an enum member: name and value directly, methods and properties of the class by tracing."""
    found = find_in_class(type(value), name)
    kept = MEMBER_ATTRIBUTES.get(name)
    if kept is not None and (found is None or is_trusted(found.holder)):
        if is_trusted(type(value)):
            return tracer.as_value(getattr(value, kept))
        rely_on_class(tracer, type(value), name)
        return tracer.objects.wrap(getattr(value, kept), AttrSource(object_source(value), kept))
    if found is not None and isinstance(found.obj, (GetSetDescriptorType, MemberDescriptorType)):
        return tracer.as_value(getattr(value, name))
    if name in value.__dict__ and (found is None or not hasattr(type(found.obj), "__set__")):
        return tracer.objects.wrap(value.__dict__[name], AttrSource(object_source(value), name))
    return tracer.python.class_attribute(member, type(value), name)


@attrs.define(eq=False)
class MemberValue(ConstantValue):
    """A member of an enum."""

    value: enum.Enum

    slots = ConstantValue.slots | NUMBER_SLOTS | {"__call__"}

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return enum_attribute(tracer, self, self.value, name)

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        held = self.as_constant()
        if not self.has(tracer, "__call__", lambda: held()):
            return super().call(tracer, args, kwargs)
        return self._special(tracer, "__call__", *args, **kwargs)

    def _is_of_enum(self, name: str) -> bool:
        """Whether a method is the one that the enum module defines, whose behaviour is known."""
        found = find_in_class(type(self.value), name)
        return found is not None and is_trusted(found.holder)

    def _special(self, tracer: Tracing, name: str, *args: Value, **kwargs: Value) -> Value:
        """Call a method that the class has, by tracing."""
        return tracer.python.class_attribute(self, type(self.value), name).call(tracer, args, kwargs)

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if is_trusted(type(self.value)):
            return None
        rely_on_class(tracer, type(self.value), name)
        found = find_in_class(type(self.value), name)
        if found is None or is_trusted(found.holder) or is_trusted(found.obj):  # each class of flags has copies
            if isinstance(self.value, enum.Flag):
                enum_attribute(tracer, self, self.value, "_value_")
            return None
        made = self._special(tracer, name, other)
        return None if is_not_implemented(made) else made

    def length(self, tracer: Tracing) -> int:
        held = self.as_constant()
        if isinstance(held, (str, bytes)) or not self.has(tracer, "__len__", lambda: len(held)):
            return super().length(tracer)
        found = len(held) if self._is_of_enum("__len__") else self._special(tracer, "__len__").as_constant()
        return found if type(found) is int and found >= 0 else super().length(tracer)

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        held = self.as_constant()
        if isinstance(held, (str, bytes)) or not self.has(tracer, "__iter__", lambda: iter(held)):
            return super().stream(tracer)
        if self._is_of_enum("__iter__"):
            return (tracer.as_value(item) for item in held)
        return self._special(tracer, "__iter__").stream(tracer)

    def contains(self, tracer: Tracing, item: Value) -> bool:
        if isinstance(self.value, enum.Flag):
            return self.holds(tracer, item)
        if isinstance(self.value, (str, bytes)) or find_in_class(type(self.value), "__contains__") is None:
            return super().contains(tracer, item)
        return self._special(tracer, "__contains__", item).truth(tracer)


@attrs.define(eq=False)
class EnumValue(ClassValue):
    """The class of an enum."""

    cls: type[enum.Enum]

    def missing(self, tracer: Tracing, name: str) -> Value:
        if find_in_class(type(self.cls), "__getattr__"):  # until Python 3.12
            tracer.raise_error(AttributeError, name)
        return super().missing(tracer, name)

    def own(self, tracer: Tracing, found: ClassMember, name: str, reached: type | None = None) -> Value:
        held = found.obj
        return tracer.constant(held) if isinstance(held, enum.Enum) else super().own(tracer, found, name, reached)

    def truth(self, tracer: Tracing) -> bool:
        return True

    def contains(self, tracer: Tracing, item: Value) -> bool:
        if not item.is_constant:  # may call its `__hash__`, depending on the Python version
            tracer.graph_break("enum-contains", type=item.describe())
        try:
            return item.as_constant() in self.cls
        except TypeError as error:
            tracer.raise_real(error)

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        rely_on_members(tracer, self.cls)
        return iter([tracer.constant(member) for member in self.cls])

    def length(self, tracer: Tracing) -> int:
        rely_on_members(tracer, self.cls)
        return len(self.cls)

    def get_item(self, tracer: Tracing, key: Value) -> Value:
        rely_on_member(tracer, self.cls, "_member_map_", key)
        try:
            return tracer.constant(self.cls[key.as_constant()])
        except KeyError as error:
            tracer.raise_real(error)


def enum_table(tracer: Tracing, cls: type[enum.Enum], name: str) -> Value | None:
    """A table of an enum's members, to which a program may add some. None if the enum is not the program's."""
    if is_trusted(cls):
        return None
    return tracer.objects.wrap(getattr(cls, name), AttrSource(object_source(cls), name))


def rely_on_members(tracer: Tracing, cls: type[enum.Enum]) -> None:
    """Guard which members an enum has."""
    if not is_trusted(cls):
        tracer.guards.equal(AttrSource(object_source(cls), "_member_names_"), list(cls._member_names_))


def rely_on_member(tracer: Tracing, cls: type[enum.Enum], table: str, key: Value) -> None:
    """Guard which member a key leads to, or that there is none."""
    held = enum_table(tracer, cls, table)
    wanted = key.as_constant()
    try:
        made = issubclass(cls, enum.Flag) and wanted not in getattr(cls, table)  # looking it up creates a member
    except TypeError:  # it has no hash, so it is searched for among the values
        return
    if isinstance(held, DictValue) and not made:
        held.find(tracer, key)


def member_of_program(member: enum.Enum, source: Source, tracer: Tracing) -> Value:
    """A member, guarded."""
    tracer.guards.equal(source, member)
    return MemberValue(member, source=source)


def enum_of_program(cls: enum.EnumMeta, source: Source, tracer: Tracing) -> Value:
    """The class of an enum of the program."""
    tracer.guards.same(source, cls)
    return EnumValue(cls, source=source) if issubclass(cls, enum.Enum) else ClassValue(cls, source=source)


VALUE_TYPES = (
    ValueType(enum.Enum, member_of_program, derived=True, fresh=lambda member, tracer: MemberValue(member)),
    ValueType(enum.EnumMeta, enum_of_program, derived=True),
)
