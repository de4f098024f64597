"""Objects of user classes: attributes as Python looks them up; calls, operators and protocols through their methods."""

from __future__ import annotations

import collections
from collections.abc import Hashable, Iterator
from types import FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, ClassVar

import attrs

from armature.frame.sources import AttrSource, DictOfSource, ItemSource
from armature.trace.errors import UserRaised
from armature.trace.trust import is_trusted
from armature.trace.values.base import Args, Kwargs, Value
from armature.trace.values.classes import Found, bind, find_in_class, inherits, is_data_descriptor

if TYPE_CHECKING:
    from armature.trace.capture import Tracer
    from armature.trace.rebuild import Rebuilder
    from armature.trace.values.user_dict import InstanceDictValue


# `__getattribute__` of types written in C that look attributes up as object does.
PLAIN_LOOKUPS: frozenset[object] = frozenset(
    kind.__getattribute__ for kind in (object, dict, collections.OrderedDict, collections.defaultdict, list, tuple, set)
)


@attrs.define(eq=False)
class UserObjectValue(Value):
    """An object. `obj`: the program's own, None for one made in the frame.

    `attributes`: what has been read of or written to it; None: deleted. `written`: names to set (or delete) on the
    object at the end of the frame.
    """

    cls: type
    obj: object = None
    attributes: dict[str, Value | None] = attrs.field(factory=dict)
    written: dict[str, None] = attrs.field(factory=dict)
    dict_value: InstanceDictValue | None = None  # its __dict__, once it was asked for

    mutable: ClassVar[bool] = True

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"an object of {self.cls.__module__}.{self.cls.__qualname__}"

    def as_object(self) -> object:
        return super().as_object() if self.obj is None else self.obj

    def key(self, tracer: Tracer) -> Hashable:
        if not (inherits(self.cls, "__hash__", object) and inherits(self.cls, "__eq__", object)):
            tracer.graph_break("unsupported-key", type=self.describe())
        tracer.keys[self] = None
        return ("id", id(self))

    # Attributes.

    def get_attribute(self, tracer: Tracer, name: str) -> Value:
        if self.cls.__getattribute__ in PLAIN_LOOKUPS:
            found = self.plain_attribute(tracer, name)
            return found if found is not None else self.missing(tracer, name)
        try:
            return tracer.call(self._special_method(tracer, "__getattribute__", name), (tracer.constant(name),), {})
        except UserRaised as raised:
            if not issubclass(raised.value.python_type(), AttributeError) or not hasattr(self.cls, "__getattr__"):
                raise
        return self.missing(tracer, name)

    def _special_method(self, tracer: Tracer, method: str, name: str) -> Value:
        found = find_in_class(self.cls, method)
        if found is None or not isinstance(found.obj, FunctionType):
            tracer.graph_break("unsupported-attribute", name=name, type=self.describe())
        return bind(tracer, self, self.cls, found, method)

    def plain_attribute(self, tracer: Tracer, name: str) -> Value | None:
        """`object.__getattribute__(obj, name)`; None where that raises AttributeError for want of one."""
        known = self.attributes.get(name)
        if known is not None:
            return known
        found = find_in_class(self.cls, name)
        if found is not None and is_data_descriptor(found.obj):
            return self._described(tracer, found, name)
        own = self.own_attribute(tracer, name)
        if own is not None:
            return own
        return None if found is None else bind(tracer, self, self.cls, found, name)

    def _described(self, tracer: Tracer, found: Found, name: str) -> Value:
        if name == "__class__":
            return tracer.as_value(self.cls)
        if name == "__dict__":
            return tracer.instance_dict(self)
        if not isinstance(found.obj, MemberDescriptorType):
            return bind(tracer, self, self.cls, found, name)
        if self.obj is None or name in self.written or self.source is None:
            tracer.raise_error(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        try:
            held = found.obj.__get__(self.obj, self.cls)
        except AttributeError as error:
            tracer.raise_real(error)
        self.attributes[name] = value = tracer.wrap(held, AttrSource(self.source, name))
        return value

    def own_attribute(self, tracer: Tracer, name: str) -> Value | None:
        """What stands in the instance's dict, None when nothing does."""
        if self.obj is None or name in self.written or self.source is None:
            return None
        held = getattr(self.obj, "__dict__", None)
        if held is None:
            return None
        if name not in held:
            if not self.is_stable(name):
                tracer.guard_not_in(DictOfSource(self.source), name)
            return None
        self.attributes[name] = value = tracer.wrap(held[name], ItemSource(DictOfSource(self.source), name))
        return value

    def is_stable(self, name: str) -> bool:
        """Whether an instance is trusted not to get an attribute that hides the one of its class."""
        return name.startswith("__") and name.endswith("__")

    def missing(self, tracer: Tracer, name: str) -> Value:
        """`__getattr__` of the class, or AttributeError."""
        fallback = find_in_class(self.cls, "__getattr__")
        if fallback is not None and isinstance(fallback.obj, FunctionType):
            return tracer.call(bind(tracer, self, self.cls, fallback, "__getattr__"), (tracer.constant(name),), {})
        for holder in self.cls.__mro__:
            if not is_trusted(holder):
                tracer.guard_not_in(tracer.object_source(holder), name)
        tracer.raise_error(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")

    def set_attribute(self, tracer: Tracer, name: str, value: Value) -> None:
        setter = find_in_class(self.cls, "__setattr__")
        if setter is not None and isinstance(setter.obj, FunctionType):
            tracer.call(bind(tracer, self, self.cls, setter, "__setattr__"), (tracer.constant(name), value), {})
            return
        self.store(tracer, name, value)

    def delete_attribute(self, tracer: Tracer, name: str) -> None:
        deleter = find_in_class(self.cls, "__delattr__")
        if deleter is not None and isinstance(deleter.obj, FunctionType):
            tracer.call(bind(tracer, self, self.cls, deleter, "__delattr__"), (tracer.constant(name),), {})
            return
        if self.attributes.get(name) is None and self.own_attribute(tracer, name) is None:
            tracer.raise_error(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        self.write(tracer, name, None)

    def store(self, tracer: Tracer, name: str, value: Value) -> None:
        """`object.__setattr__(obj, name, value)`."""
        found = find_in_class(self.cls, name)
        if found is not None and isinstance(found.obj, property):
            if found.obj.fset is None:
                tracer.raise_error(AttributeError, f"property '{name}' of '{self.cls.__name__}' object has no setter")
            tracer.call(tracer.as_value(found.obj.fset), (self, value), {})
            return
        if found is not None and is_data_descriptor(found.obj) and not isinstance(found.obj, MemberDescriptorType):
            tracer.graph_break("unsupported-mutation", operation=f"setting attribute {name}", type=self.describe())
        self.write(tracer, name, value)

    def write(self, tracer: Tracer, name: str, value: Value | None) -> None:
        """Set an attribute in the instance itself; None deletes it."""
        if self.dict_value is not None:
            self.dict_value.written(tracer, name, value)
        self.attributes[name] = value
        self.written[name] = None
        tracer.mutate(self)

    # Calls and protocols.

    def method(self, tracer: Tracer, name: str) -> Value | None:
        """A special method, looked up in the class only, bound; None when the class has none."""
        found = find_in_class(self.cls, name)
        if found is None or found.obj is None:
            return None
        return bind(tracer, self, self.cls, found, name)

    def call(self, tracer: Tracer, args: Args, kwargs: Kwargs) -> Value:
        known = tracer.handled(self.obj, args, kwargs) if self.obj is not None else None
        if known is not None:
            return known
        method = self.method(tracer, "__call__")
        if method is None:
            tracer.raise_error(TypeError, f"'{self.cls.__name__}' object is not callable")
        return tracer.call(method, args, kwargs)

    def call_method(self, tracer: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        return tracer.call(self.get_attribute(tracer, name), args, kwargs)

    def get_item(self, tracer: Tracer, key: Value) -> Value:
        return self._special(tracer, "__getitem__", key)

    def set_item(self, tracer: Tracer, key: Value, value: Value) -> None:
        self._special(tracer, "__setitem__", key, value)

    def delete_item(self, tracer: Tracer, key: Value) -> None:
        self._special(tracer, "__delitem__", key)

    def _special(self, tracer: Tracer, name: str, *args: Value) -> Value:
        method = self.method(tracer, name)
        if method is None:
            tracer.raise_error(TypeError, f"'{self.cls.__name__}' object does not support {name}")
        return tracer.call(method, args, {})

    def binary(self, tracer: Tracer, name: str, other: Value) -> Value | None:
        found = find_in_class(self.cls, name)
        if found is None or not isinstance(found.obj, FunctionType):
            if name in ("__eq__", "__ne__"):
                return None
            return self._foreign(tracer, name) if found is not None and found.holder is not object else None
        result = tracer.call(bind(tracer, self, self.cls, found, name), (other,), {})
        if result.is_constant and result.as_constant() is NotImplemented:
            return None
        return result

    def _foreign(self, tracer: Tracer, name: str) -> Value | None:
        tracer.graph_break("unsupported-operation", operation=name, type=self.describe())

    def truth(self, tracer: Tracer) -> bool:
        for name in ("__bool__", "__len__"):
            method = self.method(tracer, name)
            if method is not None:
                return tracer.call(method, (), {}).truth(tracer)
        return True

    def length(self, tracer: Tracer) -> int:
        found = self._special(tracer, "__len__").as_constant()
        return found if isinstance(found, int) else super().length(tracer)

    def stream(self, tracer: Tracer) -> Iterator[Value]:
        if self.method(tracer, "__iter__") is None:
            return self._by_index(tracer)
        iterator = self._special(tracer, "__iter__")
        if isinstance(iterator, UserObjectValue):
            return iterator.drain(tracer)
        return iterator.stream(tracer)

    def drain(self, tracer: Tracer) -> Iterator[Value]:
        """The values of an object that is an iterator itself."""
        while True:
            try:
                value = self._special(tracer, "__next__")
            except UserRaised as raised:
                if issubclass(raised.value.python_type(), StopIteration):
                    return
                raise
            yield value

    def _by_index(self, tracer: Tracer) -> Iterator[Value]:
        if self.method(tracer, "__getitem__") is None:
            tracer.raise_error(TypeError, f"'{self.cls.__name__}' object is not iterable")
        position = 0
        while True:
            try:
                value = self._special(tracer, "__getitem__", tracer.constant(position))
            except UserRaised as raised:
                if issubclass(raised.value.python_type(), (IndexError, StopIteration)):
                    return
                raise
            yield value
            position += 1

    def contains(self, tracer: Tracer, item: Value) -> bool:
        if self.method(tracer, "__contains__") is not None:
            return self._special(tracer, "__contains__", item).truth(tracer)
        return super().contains(tracer, item)

    def rebuild(self, out: Rebuilder) -> None:
        out.null_function(object.__new__)
        out.constant(self.cls)
        out.call(1)
        out.hold(self)
        self.rebuild_attributes(out)

    def rebuild_attributes(self, out: Rebuilder) -> None:
        """Emit what gives the object, made before, its attributes."""
        for name, value in self.attributes.items():
            if value is not None:
                out.set_attribute(self, name, value)
