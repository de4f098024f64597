"""Descriptors of the standard library: their result for an object whose class holds them."""

from __future__ import annotations

import collections
import functools
from types import FunctionType

from armature.plugin_api import AttrSource, Call, MethodValue, Value, handles, native, object_source
from armature_builtin_rules.functions.targets import own_methods

FIELD = type(collections.namedtuple("_Fields", "field").__dict__["field"])
CACHED: type = type(functools.lru_cache(len))


@handles(FunctionType.__get__)
def bound(call: Call, function: Value, owner: Value, cls: Value | None = None) -> Value:
    """A function of the program, bound as a method."""
    return function if owner.python_type() is type(None) else MethodValue(function, owner)


@handles(functools.cached_property.__get__)
def cached_property(call: Call, descriptor: Value, owner: Value, cls: Value | None = None) -> Value:
    """The result of its function, which is then stored in the object."""
    if owner.python_type() is type(None):
        return descriptor
    tracer, held = call.tracing, descriptor.as_object()
    call.guard(descriptor)
    tracer.guards.same(AttrSource(object_source(held), "func"), held.func)
    value = call.inline(held.func, owner)
    owner.set_attribute(tracer, held.attrname, value)
    return value


@handles(*own_methods("__get__", FIELD))
def field(call: Call, getter: Value, owner: Value, cls: Value | None = None) -> Value:
    """A field of a named tuple subclass."""
    call.guard(getter)
    position: int = getter.as_object().__reduce__()[1][0]  # only copying it reveals the position
    # the tuple's own, even if the class overrides `__getitem__`
    return native(owner).get_item(call.tracing, call.constant(position))


@handles(*own_methods("__get__", CACHED))
def cached_method(call: Call, function: Value, owner: Value, cls: Value | None = None) -> Value:
    """A method under `functools.lru_cache`."""
    return MethodValue(function, owner)
