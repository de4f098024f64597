"""isinstance, issubclass and `__subclasses__`: by Python's classes, the program's metaclasses, and torch's own
checks."""

from __future__ import annotations

import abc
import functools
import typing
import weakref
from types import UnionType

import attrs
import torch
from torch import nn

from armature.plugin_api import (
    MISSING,
    PLAIN_TENSORS,
    Call,
    ClassValue,
    NotConstant,
    ObjectValue,
    TracedTensor,
    Tracing,
    Value,
    class_member,
    find_in_class,
    handles,
    is_trusted,
    is_written_in_c,
    native,
    overrides,
    rely_on_class,
)

# Python's errors for a second argument that is not a class.
REFUSED = {
    "__instancecheck__": "isinstance() arg 2 must be a type, a tuple of types, or a union",
    "__subclasscheck__": "issubclass() arg 2 must be a class, a tuple of classes, or a union",
}


def rely_on_kind(tracer: Tracing, kind: type, wanted: object, held: object = None) -> None:
    """Guard whether a class counts as a subclass of another; `held`: the object asked about, if known."""
    if (is_trusted(kind) and is_trusted(wanted)) or not isinstance(wanted, type):
        return
    rely_on_class(tracer, kind)
    key = ("subclass", id(kind), id(wanted))
    if type(wanted).__subclasscheck__ is type.__subclasscheck__ or key in tracer.guards.lookups:
        return
    by_attributes = held is not None and getattr(wanted, "_is_protocol", False)
    try:
        answer = issubclass(kind, wanted)
    except TypeError:  # raised by a protocol that has non-method members
        answer = False
    if by_attributes and not answer:
        tracer.graph_break("isinstance-of-protocol", type=wanted.__qualname__)
    tracer.guards.lookups.add(key)
    tracer.guards.answers(functools.partial(issubclass, kind, wanted), (), {}, answer)


def says_its_class(kind: type) -> bool:
    """Whether objects of a type determine their class themselves, as proxies do."""
    found = find_in_class(kind, "__class__")
    return (found is not None and found.holder is not object) or overrides(kind, "__getattribute__")


def wanted_classes(tracer: Tracing, kinds: Value, method: str) -> tuple[type, ...]:
    """The classes in the second argument of isinstance or issubclass, which call `method`. TypeError of the program for
    a builtin object that is not a class; inside a tuple, Python may find another class before it."""
    found = classes_in(tracer, kinds)
    classes = tuple(cls for cls in found if isinstance(cls, type))
    if len(classes) == len(found):
        return classes
    others = [cls for cls in found if not isinstance(cls, type)]
    refused = others[0] is object_of(kinds) and is_written_in_c(type(others[0]))
    if refused and class_member(type(others[0]), method) is MISSING and not hasattr(others[0], "__bases__"):
        tracer.raise_error(TypeError, REFUSED[method])
    tracer.graph_break("isinstance-of-no-class", type=kinds.describe())


def object_of(value: Value) -> object:
    """The object behind a value; None if it does not exist yet."""
    try:
        return value.as_object()
    except NotConstant:
        return None


def classes_in(tracer: Tracing, kinds: Value) -> tuple[object, ...]:
    """The classes in the second argument, if it is valid."""
    if isinstance(kinds, ClassValue):
        return (kinds.cls,)
    if isinstance(kinds, ObjectValue) and not issubclass(kinds.cls, tuple) and not is_trusted(kinds.cls):
        tracer.graph_break("isinstance-of-no-class", type=kinds.describe())
    held = object_of(kinds)
    if kinds.is_constant and held is None:
        return (None,)
    if held is not None and not isinstance(held, tuple):  # a union such as `int | None`
        united = isinstance(held, UnionType) or typing.get_origin(held) is typing.Union
        return typing.get_args(held) if united else (held,)
    if not issubclass(kinds.python_type(), tuple):
        tracer.graph_break("isinstance-of-no-class", type=kinds.describe())
    return tuple(cls for item in tracer.unpack(native(kinds)) for cls in classes_in(tracer, item))


@handles(isinstance)
def is_instance(call: Call, obj: Value, kinds: Value) -> Value:
    """Ask the program's metaclasses, torch's checks for tensors, then Python's classes."""
    wanted = wanted_classes(call.tracing, kinds, "__instancecheck__")
    asked = ask_metaclass(call.tracing, "__instancecheck__", wanted, obj)
    if asked is not None:
        return asked
    kind = obj.python_type()
    if isinstance(obj, TracedTensor) and (nn.Parameter in wanted or nn.Buffer in wanted):
        marked = (nn.Parameter in wanted and is_parameter(call.tracing, obj)) or (
            nn.Buffer in wanted and is_marked(call.tracing, obj, "_is_buffer")
        )
        others = tuple(cls for cls in wanted if cls not in (nn.Parameter, nn.Buffer))
        return call.constant(marked or issubclass(kind, others))
    if isinstance(obj, TracedTensor) and any(cls.__module__ == "torch" and cls is not torch.Tensor for cls in wanted):
        # torch.FloatTensor and the like check the dtype.
        return call.constant(any(is_tensor_of(obj, cls) for cls in wanted))
    held = plain_object(obj)
    for cls in wanted:
        rely_on_kind(call.tracing, kind, cls, held)
    if says_its_class(kind):
        return call.constant(any(says_so(call, obj, cls) for cls in wanted))
    try:
        return call.constant(isinstance(held, wanted) if held is not None else issubclass(kind, wanted))
    except TypeError:  # Python reports which one is invalid
        call.graph_break("isinstance-of-no-class", type=kinds.describe())


def says_so(call: Call, obj: Value, wanted: type) -> bool:
    """Whether an object is an instance of a class, or its `__class__` claims so. As in Python, `__class__` is read once
    for each class that is not found otherwise."""
    if issubclass(obj.python_type(), wanted):
        return True
    told = call.tracing.python.attribute_or_none(obj, "__class__")
    return isinstance(told, ClassValue) and is_subclass(call, told, call.new_value(wanted)).truth(call.tracing)


def is_parameter(tracer: Tracing, obj: TracedTensor) -> bool:
    """Whether a tensor is a parameter; instances of subclasses are marked."""
    if obj.real is None or type(obj.real) in PLAIN_TENSORS:
        return issubclass(obj.python_type(), nn.Parameter)
    return is_marked(tracer, obj, "_is_param") or issubclass(type(obj.real), nn.Parameter)


def is_marked(tracer: Tracing, obj: TracedTensor, name: str) -> bool:
    """Whether a tensor has an attribute of this name that is true."""
    mark = tracer.python.attribute_or_none(obj, name)
    return mark is not None and bool(mark.as_constant())


def ask_metaclass(tracer: Tracing, name: str, wanted: tuple[type, ...], obj: Value) -> Value | None:
    """The result of isinstance or issubclass according to the program's metaclasses; None if no such metaclass is
    involved."""
    if not any(overrides(type(cls), name) and not is_trusted(type(cls)) for cls in wanted):
        return None
    for cls in wanted:
        value = tracer.as_value(cls)
        method = value.meta(tracer, name) if isinstance(value, ClassValue) and not is_trusted(type(cls)) else None
        held = plain_object(obj)
        of_object = name == "__instancecheck__"
        kind = obj.python_type() if of_object or not isinstance(obj, ClassValue) else obj.cls
        if of_object and kind is cls:  # Python asks no metaclass about an object's own class
            found = True
        elif method is None:
            found = isinstance(held, cls) if held is not None else issubclass(kind, cls)
        else:
            found = method.call(tracer, (obj,), {}).truth(tracer)
        if found:
            return tracer.constant(True)
    return tracer.constant(False)


@handles(type.__instancecheck__)
def type_instancecheck(call: Call, cls: Value, obj: Value) -> Value:
    """The answer of Python's own metaclass."""
    if not isinstance(cls, ClassValue):
        call.graph_break("isinstance-of-no-class", type=cls.describe())
    return call.constant(issubclass(obj.python_type(), cls.cls))


@handles(abc.ABCMeta.__instancecheck__)
def abstract_instancecheck(call: Call, cls: Value, obj: Value) -> Value | None:
    """The answer of abstract classes, as a metaclass of the program inherits it."""
    kind = obj.python_type()
    return None if says_its_class(kind) else by_abstract_class(call, cls, kind, plain_object(obj))


@handles(abc.ABCMeta.__subclasscheck__)
def abstract_subclasscheck(call: Call, cls: Value, other: Value) -> Value | None:
    """The same about a class."""
    return by_abstract_class(call, cls, other.cls) if isinstance(other, ClassValue) else None


def by_abstract_class(call: Call, cls: Value, kind: type, held: object = None) -> Value | None:
    """Whether an abstract class counts a class among its own; None if the program's metaclass is asked for that."""
    if not isinstance(cls, ClassValue) or type(cls.cls).__subclasscheck__ is not abc.ABCMeta.__subclasscheck__:
        return None
    rely_on_kind(call.tracing, kind, cls.cls, held)
    return call.constant(issubclass(kind, cls.cls))


@handles(type.__subclasscheck__)
def type_subclasscheck(call: Call, cls: Value, other: Value) -> Value:
    """The answer of Python's own metaclass."""
    if not isinstance(cls, ClassValue) or not isinstance(other, ClassValue):
        call.graph_break("isinstance-of-no-class", type=cls.describe())
    return call.constant(cls.cls in other.cls.__mro__)


def is_tensor_of(obj: TracedTensor, cls: type) -> bool:
    """Whether a tensor is an instance of a class such as torch.FloatTensor."""
    if issubclass(torch.Tensor, cls):
        return True
    told = torch.empty(0, dtype=obj.dtype, device="meta").type().replace("meta.", "")
    return f"{cls.__module__}.{cls.__name__}" == told


def plain_object(obj: Value) -> object:
    """The Python object itself, for classes that inspect it in isinstance; None if there is none."""
    return obj.obj if isinstance(obj, ObjectValue) else None


@handles(issubclass)
def is_subclass(call: Call, cls: Value, kinds: Value) -> Value:
    """Ask the program's metaclasses, then Python's classes."""
    if not isinstance(cls, ClassValue):
        call.tracing.raise_error(TypeError, "issubclass() arg 1 must be a class")
    wanted = wanted_classes(call.tracing, kinds, "__subclasscheck__")
    asked = ask_metaclass(call.tracing, "__subclasscheck__", wanted, cls)
    for other in wanted:
        rely_on_kind(call.tracing, cls.cls, other)
    try:
        return call.constant(issubclass(cls.cls, wanted)) if asked is None else asked
    except TypeError as error:
        call.tracing.raise_real(error)


@attrs.frozen(eq=False, repr=False)
class Listed:
    """The subclasses of a class, held weakly: equal if all of them are the same."""

    references: tuple[weakref.ref[type], ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Listed) or len(self.references) != len(other.references):
            return False
        pairs = [(one(), another()) for one, another in zip(self.references, other.references)]
        return all(one is another and one is not None for one, another in pairs)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"[{', '.join(getattr(one(), '__qualname__', '?') for one in self.references)}]"


def listed(cls: type) -> Listed:
    """The current result of `cls.__subclasses__()`."""
    return Listed(tuple(map(weakref.ref, type.__subclasses__(cls))))


@handles(type.__subclasses__)
def subclasses(call: Call, cls: Value) -> Value:
    """The subclasses of a class, guarded."""
    if not isinstance(cls, ClassValue) or type(cls.cls).__subclasses__ is not type.__subclasses__:
        call.graph_break("list-of-subclasses", type=cls.describe())
    found: list[type] = type.__subclasses__(cls.cls)
    call.tracing.guards.answers(listed, (cls.cls,), {}, listed(cls.cls))
    return call.new_value(found)
