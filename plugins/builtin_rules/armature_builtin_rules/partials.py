"""functools.partial and functools.update_wrapper while tracing."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import ClassVar

import attrs

from armature.plugin_api import (
    MISSING,
    Args,
    AttrSource,
    Call,
    ClosureValue,
    Identity,
    Kwargs,
    MethodValue,
    NotConstant,
    ObjectValue,
    Rebuilding,
    Source,
    Tracing,
    TupleValue,
    Value,
    ValueType,
    attribute_of_builtin,
    class_member,
    handles,
    namespace_of,
)


@attrs.define(eq=False)
class PartialValue(Value):
    """functools.partial(function, *args, **kwargs). `attributes`: set on one made in the frame."""

    function: Value
    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    kind: type
    attributes: dict[str, Value] = attrs.field(factory=dict)

    mutable: ClassVar[bool] = True
    slots = frozenset({"__call__", "__hash__"})

    def python_type(self) -> type:
        return self.kind

    def key(self, tracer: Tracing) -> Hashable:
        return Identity(self) if self.source is None else super().key(tracer)

    def contents(self) -> object:
        return self.function, self.args, self.kwargs

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        return self.function.call(tracer, (*self.args, *args), {**self.kwargs, **kwargs})

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name == "func":
            return self.function
        if name == "args":
            return TupleValue(list(self.args))
        if name == "keywords":
            return namespace_of(tracer, self.kwargs)
        if name in self.attributes:
            return self.attributes[name]
        return attribute_of_builtin(tracer, self, name)

    def set_attribute(self, tracer: Tracing, name: str, value: Value) -> None:
        if self.source is not None or hasattr(self.kind, name):
            super().set_attribute(tracer, name, value)
        self.attributes[name] = value

    def rebuild(self, out: Rebuilding) -> None:
        out.spread(self.kind, (self.function, *self.args), self.kwargs)
        for name, value in self.attributes.items():
            out.store_attribute(name, value)


@handles(functools.partial)
def make_partial(call: Call, function: Value, *args: Value, **kwargs: Value) -> Value:
    """A new partial; for a partial of a partial, function and arguments are merged."""
    if isinstance(function, PartialValue) and function.kind is functools.partial and not function.attributes:
        args, kwargs = (*function.args, *args), {**function.kwargs, **kwargs}
        function = function.function
    if class_member(function.python_type(), "__call__") is MISSING:
        call.tracing.raise_error(TypeError, "the first argument must be callable")
    return PartialValue(function, args, kwargs, functools.partial)


def of_program(obj: functools.partial[object], source: Source, tracer: Tracing) -> Value:
    """A partial of the program."""
    function = tracer.objects.wrap(obj.func, AttrSource(source, "func"))
    args = tracer.unpack(tracer.objects.wrap(obj.args, AttrSource(source, "args")))
    held = tracer.objects.wrap(obj.keywords, AttrSource(source, "keywords"))
    named = {name: held.get_item(tracer, tracer.constant(name)) for name in obj.keywords}
    tracer.unpack(held)  # all keys are guarded
    return PartialValue(function, tuple(args), named, type(obj), source=source)


FUNCTION_TYPES = (FunctionType, BuiltinFunctionType, MethodType)
NAMES = ("__name__", "__qualname__", "__module__", "__doc__")
COPIED = {"assigned": functools.WRAPPER_ASSIGNMENTS, "updated": functools.WRAPPER_UPDATES}


@handles(functools.update_wrapper)
def update_wrapper(call: Call, wrapper: Value, wrapped: Value, *args: Value, **kwargs: Value) -> Value:
    """Update a wrapper made in the frame; an existing one would be changed permanently."""
    tracer, kind = call.tracing, wrapped.python_type()
    if isinstance(wrapper, ObjectValue) and wrapper.source is None:  # Python's own code sets the attributes
        return call.polyfill(functools.update_wrapper, wrapper, wrapped, *args, **kwargs)
    usual = not args and all(is_tuple_of(value, COPIED[name]) for name, value in kwargs.items())
    held = None if kind in FUNCTION_TYPES else tracer.python.attribute_or_none(wrapped, "__dict__")
    plain = held is None or held.python_type() is dict  # that of a class is no dict
    if not isinstance(wrapper, ClosureValue) or not usual or not plain:
        call.graph_break("update-wrapper", type=wrapper.describe())
    for name in NAMES if kind in FUNCTION_TYPES else functools.WRAPPER_ASSIGNMENTS:
        found = tracer.python.attribute_or_none(wrapped, name)
        if found is not None:
            wrapper.set_attribute(tracer, name, found)
    for name in names_in_dict(wrapped) if kind in FUNCTION_TYPES else ():
        wrapper.set_attribute(tracer, name, wrapped.get_attribute(tracer, name))
    if held is not None:
        wrapper.get_attribute(tracer, "__dict__").call_method(tracer, "update", (held,), {})
    wrapper.set_attribute(tracer, "__wrapped__", wrapped)
    return wrapper


def names_in_dict(function: Value) -> list[str]:
    """The names in the `__dict__` of a function, or of the function behind a method."""
    inner = function.function if isinstance(function, MethodValue) else function
    return inner.own_names() if isinstance(inner, ClosureValue) else list(getattr(inner.as_object(), "__dict__", ()))


def is_tuple_of(value: Value, names: tuple[str, ...]) -> bool:
    """Whether it is a tuple of exactly these names."""
    try:
        return bool(value.as_constant() == names)
    except NotConstant:
        return False


VALUE_TYPES = (ValueType(functools.partial, of_program),)
