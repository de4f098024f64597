"""isinstance, issubclass and `__subclasses__`: by Python's classes, metaclasses of the program, and what torch asks."""

from __future__ import annotations

import typing
import weakref
from collections.abc import Callable
from types import UnionType
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch import nn

from armature.introspection import MISSING, class_member, is_written_in_c
from armature.torch_abi.fake import PLAIN_TENSORS
from armature.trace.trust import is_trusted
from armature.trace.values.base import NotConstant, Value
from armature.trace.values.classes import ClassValue, overrides, rely_on_kind, says_its_class
from armature.trace.values.derived import native
from armature.trace.values.tensor import TensorValue
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace


# What Python says of a second argument that is no class.
REFUSED = {
    "__instancecheck__": "isinstance() arg 2 must be a type, a tuple of types, or a union",
    "__subclasscheck__": "issubclass() arg 2 must be a class, a tuple of classes, or a union",
}


def _wanted(tracer: Trace, kinds: Value, method: str) -> tuple[type, ...]:
    """The classes in the second argument of isinstance or issubclass, which ask for `method`. TypeError of the program
    for an object of Python's own that is none; where one stands in a tuple, Python may find another before it."""
    found = _classes(tracer, kinds)
    others = [cls for cls in found if not isinstance(cls, type)]
    if not others:
        return found
    refused = others[0] is _object_of(kinds) and is_written_in_c(type(others[0]))
    if refused and class_member(type(others[0]), method) is MISSING and not hasattr(others[0], "__bases__"):
        tracer.raise_error(TypeError, REFUSED[method])
    tracer.graph_break("isinstance-of-no-class", type=kinds.describe())


def _object_of(value: Value) -> object:
    """The object that a value stands for; None where there is none yet."""
    try:
        return value.as_object()
    except NotConstant:
        return None


def _classes(tracer: Trace, kinds: Value) -> tuple[Any, ...]:
    """What the second argument names: classes, if the program is right."""
    if isinstance(kinds, ClassValue):
        return (kinds.cls,)
    if isinstance(kinds, UserObjectValue) and not issubclass(kinds.cls, tuple) and not is_trusted(kinds.cls):
        tracer.graph_break("isinstance-of-no-class", type=kinds.describe())
    held: Any = _object_of(kinds)
    if kinds.is_constant and held is None:
        return (None,)
    if held is not None and not isinstance(held, tuple):  # a union such as `int | None`
        united = isinstance(held, UnionType) or typing.get_origin(held) is typing.Union
        return tuple(held.__args__) if united else (held,)
    if not issubclass(kinds.python_type(), tuple):
        tracer.graph_break("isinstance-of-no-class", type=kinds.describe())
    return tuple(cls for item in tracer.unpack(native(kinds)) for cls in _classes(tracer, item))


def _isinstance(tracer: Trace, obj: Value, kinds: Value) -> Value:
    wanted = _wanted(tracer, kinds, "__instancecheck__")
    asked = _ask_metaclass(tracer, "__instancecheck__", wanted, obj)
    if asked is not None:
        return asked
    kind = obj.python_type()
    if isinstance(obj, TensorValue) and (nn.Parameter in wanted or nn.Buffer in wanted):
        marked = (nn.Parameter in wanted and _is_parameter(tracer, obj)) or (
            nn.Buffer in wanted and _is_marked(tracer, obj, "_is_buffer")
        )
        others = tuple(cls for cls in wanted if cls not in (nn.Parameter, nn.Buffer))
        return tracer.constant(marked or issubclass(kind, others))
    if isinstance(obj, TensorValue) and any(cls.__module__ == "torch" and cls is not torch.Tensor for cls in wanted):
        # torch.FloatTensor and its kind ask for the dtype.
        return tracer.constant(any(_is_tensor_of(obj, cls) for cls in wanted))
    held = _plain_object(obj)
    for cls in wanted:
        rely_on_kind(tracer, kind, cls, held)
    if says_its_class(kind):
        return tracer.constant(any(_says_so(tracer, obj, cls) for cls in wanted))
    try:
        return tracer.constant(isinstance(held, wanted) if held is not None else issubclass(kind, wanted))
    except TypeError:  # Python says which it is
        tracer.graph_break("isinstance-of-no-class", type=kinds.describe())


def _says_so(tracer: Trace, obj: Value, wanted: type) -> bool:
    """Whether an object is of a class, or says so itself: it is asked once for each class that it is not of."""
    if issubclass(obj.python_type(), wanted):
        return True
    told = tracer.python.attribute_or_none(obj, "__class__")
    return isinstance(told, ClassValue) and _issubclass(tracer, told, tracer.as_value(wanted)).truth(tracer)


def _is_parameter(tracer: Trace, obj: TensorValue) -> bool:
    if obj.real is None or type(obj.real) in PLAIN_TENSORS:
        return issubclass(obj.python_type(), nn.Parameter)
    # One of a subclass is a parameter by a mark.
    return _is_marked(tracer, obj, "_is_param") or issubclass(type(obj.real), nn.Parameter)


def _is_marked(tracer: Trace, obj: TensorValue, name: str) -> bool:
    mark = tracer.python.attribute_or_none(obj, name)
    return mark is not None and bool(mark.as_constant())


def _ask_metaclass(tracer: Trace, name: str, wanted: tuple[type, ...], obj: Value) -> Value | None:
    """What metaclasses of the program answer to isinstance and issubclass; None when none of them is asked."""
    if not any(overrides(type(cls), name) and not is_trusted(type(cls)) for cls in wanted):
        return None
    for cls in wanted:
        value = tracer.as_value(cls)
        method = value.meta(tracer, name) if isinstance(value, ClassValue) and not is_trusted(type(cls)) else None
        held = _plain_object(obj)
        kind = obj.python_type()
        if method is None:
            found = isinstance(held, cls) if held is not None else issubclass(kind, cls)
        else:
            found = method.call(tracer, (obj,), {}).truth(tracer)
        if found:
            return tracer.constant(True)
    return tracer.constant(False)


def _type_instancecheck(tracer: Trace, cls: Value, obj: Value) -> Value:
    if not isinstance(cls, ClassValue):
        tracer.graph_break("isinstance-of-no-class", type=cls.describe())
    return tracer.constant(issubclass(obj.python_type(), cls.cls))


def _type_subclasscheck(tracer: Trace, cls: Value, other: Value) -> Value:
    if not isinstance(cls, ClassValue) or not isinstance(other, ClassValue):
        tracer.graph_break("isinstance-of-no-class", type=cls.describe())
    return tracer.constant(cls.cls in other.cls.__mro__)


def _is_tensor_of(obj: TensorValue, cls: type) -> bool:
    if issubclass(torch.Tensor, cls):
        return True
    return f"{cls.__module__}.{cls.__name__}" == torch.empty(0, dtype=obj.dtype, device="meta").type().replace(
        "meta.", ""
    )


def _plain_object(obj: Value) -> Any:
    """The Python object itself, for classes that answer isinstance by looking at it; None when there is none."""
    return obj.obj if isinstance(obj, UserObjectValue) else None


def _issubclass(tracer: Trace, cls: Value, kinds: Value) -> Value:
    if not isinstance(cls, ClassValue):
        tracer.raise_error(TypeError, "issubclass() arg 1 must be a class")
    wanted = _wanted(tracer, kinds, "__subclasscheck__")
    asked = _ask_metaclass(tracer, "__subclasscheck__", wanted, cls)
    for other in wanted:
        rely_on_kind(tracer, cls.cls, other)
    try:
        return tracer.constant(issubclass(cls.cls, wanted)) if asked is None else asked
    except TypeError as error:
        tracer.raise_real(error)


@attrs.frozen(eq=False, repr=False)
class Listed:
    """The classes that derive from one, not kept alive: as before if all are the same ones."""

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
    """What `cls.__subclasses__()` lists now."""
    return Listed(tuple(map(weakref.ref, type.__subclasses__(cls))))


def _subclasses(tracer: Trace, cls: Value) -> Value:
    """`type.__subclasses__`, guarded."""
    if not isinstance(cls, ClassValue) or type(cls.cls).__subclasses__ is not type.__subclasses__:
        tracer.graph_break("list-of-subclasses", type=cls.describe())
    found: list[type] = type.__subclasses__(cls.cls)
    tracer.guards.answers(listed, (cls.cls,), {}, listed(cls.cls))
    return tracer.as_value(found)


CHECKS: dict[Any, Callable[..., Value]] = {
    isinstance: _isinstance,
    issubclass: _issubclass,
    type.__instancecheck__: _type_instancecheck,
    type.__subclasscheck__: _type_subclasscheck,
    type.__subclasses__: _subclasses,
}
