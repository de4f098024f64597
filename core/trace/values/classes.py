"""Classes, `super()`, and the binding of class attributes to objects."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
)
from typing import TYPE_CHECKING, Any

import attrs

from armature.frame.sources import AttrSource, DictOfSource, ItemSource, object_source
from armature.introspection import MISSING, class_member
from armature.trace.base import (
    Args,
    Kwargs,
    NotConstant,
    Value,
    length_of,
    raise_lacking,
    raise_missing,
    truth_of,
    type_name,
    unless_not_implemented,
)
from armature.trace.errors import UserRaised
from armature.trace.slots import ALL_SLOTS
from armature.trace.trust import is_trusted
from armature.trace.values.function import BUILTIN_TYPES, BuiltinValue, MethodValue
from armature.trace.values.streams import Steps

if TYPE_CHECKING:
    from armature.frame.sources import Source
    from armature.trace.base import Rebuilding, Tracing


@attrs.frozen(eq=False)
class ClassMember:
    """An attribute in the `__dict__` of a class: the class that holds it, and the raw object."""

    holder: type
    obj: Any


def find_in_class(cls: type, name: str, after: type | None = None) -> ClassMember | None:
    """The raw attribute of the first class in the MRO that has it; `after`: search only behind that class."""
    mro = cls.__mro__
    for holder in mro if after is None else mro[mro.index(after) + 1 :]:
        if name in holder.__dict__:
            return ClassMember(holder, holder.__dict__[name])
    return None


def rely_on_class(tracer: Tracing, cls: type, *names: str, after: type | None = None) -> None:
    """Guard which class each name is found in, or that none has it. `after`: search only behind that class."""
    known = (id(cls), names, id(after))
    if known in tracer.guards.lookups:
        return
    tracer.guards.lookups.add(known)
    mro = cls.__mro__
    for name in names:
        for holder in mro if after is None else mro[mro.index(after) + 1 :]:
            if name in holder.__dict__:
                break
            if not is_trusted(holder):
                tracer.guards.lacks(holder, name)
    if not is_trusted(cls):
        tracer.guards.lacks(cls)


def inherits(cls: type, name: str, base: type) -> bool:
    """Whether a class inherits an attribute unchanged from a base."""
    return getattr(cls, name, None) is getattr(base, name, None)


def overrides(cls: type, name: str) -> bool:
    """Whether the class overrides, in Python, a method that builtin types implement in C."""
    found = find_in_class(cls, name)
    return found is not None and isinstance(found.obj, FunctionType)


def is_descriptor(obj: object) -> bool:
    """Whether an object in a class is a descriptor with a `__get__` in Python."""
    return overrides(type(obj), "__get__")


def is_data_descriptor(obj: object) -> bool:
    """Whether an object in a class is a data descriptor, which takes precedence over the instance's `__dict__`."""
    return hasattr(type(obj), "__set__") or hasattr(type(obj), "__delete__")


def class_source(tracer: Tracing, cls: type, name: str) -> Source | None:
    """Source of an attribute of a class; None if the class is trusted not to change."""
    if is_trusted(cls):
        return None
    found, meta = find_in_class(cls, name), find_in_class(type(cls), name)
    if found is not None and meta is not None and is_data_descriptor(meta.obj):  # `cls.name` would read the metaclass's
        rely_on_class(tracer, cls, name)
        return ItemSource(DictOfSource(object_source(found.holder)), name)
    return AttrSource(object_source(cls), name)


def held_value(tracer: Tracing, cls: type, found: ClassMember, name: str) -> Value:
    """The value of a function or other object found in a class, guarded by identity."""
    key = (found.holder, cls, name)
    known = tracer.objects.class_values.get(key)
    if known is not None:
        return known
    obj: Any = found.obj
    if is_descriptor(obj) and not is_trusted(found.holder):  # getattr would call its `__get__`
        rely_on_class(tracer, cls, name)
        holder = object_source(found.holder)
        value = tracer.objects.wrap(obj, ItemSource(DictOfSource(holder), name))
        tracer.objects.class_values[key] = value
        return value
    if isinstance(obj, (staticmethod, classmethod)):
        obj = obj.__func__
        if isinstance(found.obj, classmethod) and isinstance(obj, property):  # Python 3.13 no longer chains the two
            tracer.graph_break("class-property", name=name, type=cls.__name__)
    source = class_source(tracer, cls if not is_trusted(found.holder) else found.holder, name)
    if source is not None and isinstance(found.obj, classmethod):
        source = AttrSource(source, "__func__")
    value = tracer.objects.wrap(obj, source if source is not None else object_source(obj, f"{cls.__name__}.{name}"))
    tracer.objects.class_values[key] = value
    return value


def bind(tracer: Tracing, owner: Value, cls: type, found: ClassMember, name: str) -> Value:
    """`owner.name`, where the class holds the attribute `found`: the result of its `__get__`."""
    obj = found.obj
    kind = type(obj)
    if kind is FunctionType:
        return MethodValue(held_value(tracer, cls, found, name), owner)
    binder = BINDERS.get(kind)
    if binder is not None:
        return binder(tracer, owner, cls, found, name)
    if kind in BUILTIN_TYPES:
        rely_on_class(tracer, cls, name)
    if kind is BuiltinFunctionType:  # it does not bind
        return BuiltinValue(obj)
    if kind in BUILTIN_TYPES:
        return MethodValue(BuiltinValue(obj), owner)
    getter = find_in_class(kind, "__get__")
    if getter is None:
        rely_on_class(tracer, kind, "__get__")
        return held_value(tracer, cls, found, name)
    if getter.holder is property:
        return _bind_property(tracer, owner, cls, found, name)
    if not isinstance(getter.obj, FunctionType) and not tracer.calls.has_handler(getter.obj):
        tracer.graph_break("descriptor-in-c", name=name, type=owner.describe())
    descriptor, method = held_value(tracer, cls, found, name), held_value(tracer, kind, getter, "__get__")
    return method.call(tracer, (descriptor, owner, tracer.as_value(owner.python_type())), {})


def _bind_property(tracer: Tracing, owner: Value, cls: type, found: ClassMember, name: str) -> Value:
    getter: Callable[..., object] | None = found.obj.fget
    if getter is None:
        tracer.raise_error(AttributeError, f"property '{name}' of '{cls.__name__}' object has no getter")
    source = class_source(tracer, cls, name)
    if source is not None:
        tracer.guards.same(source, found.obj)
    return tracer.as_value(getter).call(tracer, (owner,), {})


def _bind_class_method(tracer: Tracing, owner: Value, cls: type, found: ClassMember, name: str) -> Value:
    return MethodValue(held_value(tracer, cls, found, name), tracer.as_value(owner.python_type()))


def _bind_class_method_in_c(tracer: Tracing, owner: Value, cls: type, found: ClassMember, name: str) -> Value:
    kind = tracer.as_value(owner.python_type())
    if not isinstance(kind, ClassValue):  # a plugin's value
        return kind.get_attribute(tracer, name)
    return class_method_in_c(tracer, found.obj, kind)


def _bind_static_method(tracer: Tracing, owner: Value, cls: type, found: ClassMember, name: str) -> Value:
    return held_value(tracer, cls, found, name)


def _bind_slot(tracer: Tracing, owner: Value, cls: type, found: ClassMember, name: str) -> Value:
    tracer.graph_break("slot-of-derived-class", name=name, type=owner.describe())


Binder = Callable[["Tracing", Value, type, ClassMember, str], Value]
BINDERS: dict[type, Binder] = {
    property: _bind_property,
    classmethod: _bind_class_method,
    staticmethod: _bind_static_method,
    ClassMethodDescriptorType: _bind_class_method_in_c,
    MemberDescriptorType: _bind_slot,
    GetSetDescriptorType: _bind_slot,
}


def binds(value: Value) -> bool:
    """Whether a value in a class binds to instances or handles assignment (is a descriptor), as functions do."""
    kind = value.python_type()
    return any(find_in_class(kind, name) is not None for name in ("__get__", "__set__", "__delete__"))


def class_attribute(tracer: Tracing, owner: Value, cls: type, name: str) -> Value:
    """`owner.name` as far as its classes define it. Raises AttributeError of the program."""
    written = tracer.effects.class_attribute(cls, name)
    if written is not None:
        return written
    found = find_in_class(cls, name)
    if found is None:
        if name == "__class__":
            return tracer.as_value(cls)
        rely_on_class(tracer, cls, name)
        raise_missing(tracer, cls, name)
    return bind(tracer, owner, cls, found, name)


def got_by_class(tracer: Tracing, holder: type, found: ClassMember, name: str, owner: Value) -> Value:
    """The result of a Python descriptor for `owner.name`, where the owner is a class."""
    getter = find_in_class(type(found.obj), "__get__")
    args = (held_value(tracer, holder, found, name), tracer.constant(None), owner)
    return tracer.as_value(getter.obj if getter is not None else None).call(tracer, args, {})


def class_method_in_c(tracer: Tracing, descriptor: Any, owner: ClassValue) -> Value:
    """Bind a C class method to a class."""
    if tracer.calls.goes_first(descriptor):
        return MethodValue(BuiltinValue(descriptor), owner)
    return BuiltinValue(descriptor.__get__(None, owner.cls))


@attrs.define(eq=False)
class ClassValue(Value):
    """A class."""

    cls: type

    slots = ALL_SLOTS  # its metaclass decides

    def python_type(self) -> type:
        return type(self.cls)

    def describe(self) -> str:
        return f"class {self.cls.__module__}.{self.cls.__qualname__}"

    def as_object(self) -> Any:
        return self.cls

    def as_argument(self, tracer: Tracing) -> object:
        return self.cls

    def key(self, tracer: Tracing) -> Hashable:
        return self.cls

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        return tracer.calls.call_class(self, args, kwargs)

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        """`cls.name` (data model, 3.3.2.2): a data descriptor of the metaclass, else an attribute of the class and its
        bases, else another attribute of the metaclass, else the metaclass's `__getattr__`."""
        read = OWN_ATTRIBUTES.get(name)
        if read is not None:
            return read(tracer, self.cls, name)
        written = tracer.effects.class_attribute(self.cls, name)
        if written is not None:
            return written
        found = find_in_class(self.cls, name)
        meta = find_in_class(type(self.cls), name)
        if meta is not None and isinstance(meta.obj, (GetSetDescriptorType, MemberDescriptorType)):
            return self._read_by_python(tracer, name)
        if meta is not None and is_data_descriptor(meta.obj):
            return bind(tracer, self, type(self.cls), meta, name)
        if found is not None:
            rely_on_class(tracer, type(self.cls), name)
            return self.own(tracer, found, name)
        rely_on_class(tracer, self.cls, name)
        if meta is not None:
            return bind(tracer, self, type(self.cls), meta, name)
        rely_on_class(tracer, type(self.cls), name, "__getattr__")
        return self.missing(tracer, name)

    def missing(self, tracer: Tracing, name: str) -> Value:
        """`__getattr__` of the metaclass, or AttributeError."""
        fallback = self.meta(tracer, "__getattr__")
        if fallback is not None:
            return fallback.call(tracer, (tracer.constant(name),), {})
        tracer.raise_error(AttributeError, f"type object '{self.cls.__name__}' has no attribute '{name}'")

    def _read_by_python(self, tracer: Tracing, name: str) -> Value:
        """The result of a trusted descriptor for the class."""
        try:
            held = getattr(self.cls, name)
        except AttributeError as error:
            tracer.raise_real(error)
        return tracer.objects.wrap(held, object_source(held))

    def own(self, tracer: Tracing, found: ClassMember, name: str, reached: type | None = None) -> Value:
        """An attribute of the class or a base, bound to the class. reached: the class on which the lookup started, if
        that is another one, as for `super()`."""
        kind, cls = type(found.obj), reached or self.cls
        if reached is None and kind in (enum.property, property, MemberDescriptorType, GetSetDescriptorType):
            return self._read_by_python(tracer, name)
        if is_descriptor(found.obj):
            return got_by_class(tracer, cls, found, name, self)
        if isinstance(found.obj, classmethod):
            return MethodValue(held_value(tracer, cls, found, name), self)
        if kind is ClassMethodDescriptorType:
            return class_method_in_c(tracer, found.obj, self)
        if kind in BUILTIN_TYPES and hasattr(kind, "__get__") and reached is None:
            rely_on_class(tracer, self.cls, name)
            return BuiltinValue(getattr(self.cls, name))
        return held_value(tracer, cls, found, name)

    def set_attribute(self, tracer: Tracing, name: str, value: Value) -> None:
        setter = find_in_class(type(self.cls), "__setattr__")
        held, meta = find_in_class(self.cls, name), find_in_class(type(self.cls), name)
        plain = setter is not None and setter.holder is type
        described = any(found and is_data_descriptor(found.obj) for found in (held, meta)) or binds(value)
        if not plain or is_trusted(self.cls) or name.startswith("__") or described:
            tracer.graph_break("sets-class-attribute", name=name, type=self.describe())
        if not isinstance(self.cls.__dict__.get(name), (FunctionType, classmethod, staticmethod)):
            tracer.effects.store_class_attribute(self.cls, name, value)
            return
        tracer.graph_break("replaces-method", name=name, type=self.describe())

    def meta(self, tracer: Tracing, name: str) -> Value | None:
        """A special method that the metaclass defines in Python, bound to the class."""
        rely_on_class(tracer, type(self.cls), name)
        found = find_in_class(type(self.cls), name) if overrides(type(self.cls), name) else None
        return None if found is None else bind(tracer, self, type(self.cls), found, name)

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        method = self.meta(tracer, name)
        if method is None:
            return None
        return unless_not_implemented(method.call(tracer, (other,), {}))

    def unary(self, tracer: Tracing, name: str) -> Value:
        method = self.meta(tracer, name)
        return raise_lacking(tracer, self, name) if method is None else method.call(tracer, (), {})

    def truth(self, tracer: Tracing) -> bool:
        method = self.meta(tracer, "__bool__")
        made = None if method is None else method.call(tracer, (), {})
        return truth_of(tracer, self, made, made is None and self.meta(tracer, "__len__") is not None)

    def contains(self, tracer: Tracing, item: Value) -> bool:
        method = self.meta(tracer, "__contains__")
        if method is not None:
            return method.call(tracer, (item,), {}).truth(tracer)
        return super().contains(tracer, item) if self.meta(tracer, "__iter__") is None else found_in(tracer, self, item)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        return self.get_attribute(tracer, name).call(tracer, args, kwargs)

    def stream(self, tracer: Tracing) -> Any:
        method = self.meta(tracer, "__iter__")
        if method is None:
            return super().stream(tracer)
        return must_be_iterator(tracer, method.call(tracer, (), {})).stream(tracer)

    def length(self, tracer: Tracing) -> int:
        method = self.meta(tracer, "__len__")
        return super().length(tracer) if method is None else length_of(tracer, method.call(tracer, (), {}))

    def get_item(self, tracer: Tracing, key: Value) -> Value:
        method = self.meta(tracer, "__getitem__")
        if method is not None:
            return method.call(tracer, (key,), {})
        try:
            generic = self.as_object()[as_type(tracer, key)]
        except (NotConstant, TypeError):
            tracer.graph_break("class-subscript", type=self.describe())
        return tracer.objects.wrap(generic, object_source(generic))

    def rebuild(self, out: Rebuilding) -> None:
        out.constant(self.cls)


def must_be_iterator(tracer: Tracing, value: Value) -> Value:
    """Check the result of `__iter__`. TypeError of the program if it has no `__next__`."""
    kind = value.python_type()
    if class_member(kind, "__next__") is MISSING:
        rely_on_class(tracer, kind, "__next__")
        tracer.raise_error(TypeError, f"iter() returned non-iterator of type '{type_name(kind)}'")
    return value


def found_in(tracer: Tracing, value: Value, item: Value) -> bool:
    """`item in value` for an object without `__contains__` (language reference, 6.10.2): by iterating."""
    try:
        iterator = tracer.python.iterator(value)
    except UserRaised as raised:
        if not issubclass(raised.value.python_type(), TypeError):
            raise
        raise_lacking(tracer, value, "__contains__")
    return any(tracer.python.same_or_equal(found, item) for found in Steps(lambda: iterator.advance(tracer)))


def _fixed(tracer: Tracing, cls: type, name: str) -> Value:
    if not is_trusted(cls) and name in WRITABLE:
        return tracer.objects.wrap(getattr(cls, name), AttrSource(object_source(cls), name))
    rely_on_class(tracer, cls)
    return tracer.as_value(getattr(cls, name))


WRITABLE = ("__name__", "__qualname__", "__module__", "__doc__")
OWN_ATTRIBUTES: dict[str, Callable[[Tracing, type, str], Value]] = {
    **dict.fromkeys((*WRITABLE, "__mro__", "__bases__", "__base__"), _fixed),
    "__class__": lambda tracer, cls, name: tracer.as_value(type(cls)),
    "__dict__": lambda tracer, cls, name: tracer.as_value(cls.__dict__),
}
"""Attributes that every class has from `type`."""


def as_type(tracer: Tracing, key: Value) -> Any:
    """The class, or tuple of classes, that subscripts a generic. Raises NotConstant."""
    if key.python_type() is tuple:
        return tuple(as_type(tracer, item) for item in tracer.unpack(key))
    if key.python_type() is list:  # the parameters of a `Callable`
        return [as_type(tracer, item) for item in tracer.unpack(key)]
    return key.as_object()
