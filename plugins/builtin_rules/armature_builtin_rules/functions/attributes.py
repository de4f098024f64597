"""Attributes of objects, and namespaces: getattr and its kin, vars, dir, globals, locals."""

from __future__ import annotations

import collections
import functools
import types

import torch

from armature.plugin_api import (
    MISSING,
    Call,
    CellValue,
    ObjectSource,
    ObjectValue,
    TracedTensor,
    Tracing,
    Value,
    class_member,
    handles,
    inherits,
    namespace_of,
    program_of,
    raise_missing,
    type_name,
)

# Types with functions of their own that look up attributes, or set and delete them, as those of `object` do.
PLAIN_LOOKUP: tuple[type, ...] = (
    object, dict, collections.OrderedDict, collections.defaultdict, list, set, frozenset, tuple, int, float, complex,
    str, bytes, collections.deque, types.SimpleNamespace, property,
)  # fmt: skip
PLAIN_CHANGE: tuple[type, ...] = (object, BaseException, types.SimpleNamespace, functools.partial)


def attribute_name(tracer: Tracing, name: Value) -> str:
    """The name of an attribute. TypeError of the program if it is not a string."""
    kind = name.python_type()
    if not issubclass(kind, str):
        tracer.raise_error(TypeError, f"attribute name must be string, not '{type_name(kind)}'")
    return str(name.as_constant())


@handles(getattr)
def get_attribute(call: Call, obj: Value, name: Value, default: Value | None = None, /) -> Value:
    """If there is a default, AttributeError of the lookup is caught."""
    text = attribute_name(call.tracing, name)
    if default is None:
        return obj.get_attribute(call.tracing, text)
    found = call.tracing.python.attribute_or_none(obj, text)
    return default if found is None else found


@handles(hasattr)
def has_attribute(call: Call, obj: Value, name: Value) -> Value:
    """Whether a lookup finds the attribute."""
    text = attribute_name(call.tracing, name)
    if isinstance(obj, TracedTensor) and class_member(torch.Tensor, text) is not MISSING:
        return call.constant(True)
    return call.constant(call.tracing.python.attribute_or_none(obj, text) is not None)


@handles(setattr)
def set_attribute(call: Call, obj: Value, name: Value, value: Value) -> Value:
    """Set an attribute through the object's class."""
    obj.set_attribute(call.tracing, attribute_name(call.tracing, name), value)
    return call.constant(None)


@handles(delattr)
def delete_attribute(call: Call, obj: Value, name: Value) -> Value:
    """Delete an attribute through the object's class."""
    obj.delete_attribute(call.tracing, attribute_name(call.tracing, name))
    return call.constant(None)


@handles(*dict.fromkeys(kind.__setattr__ for kind in PLAIN_CHANGE))
def store(call: Call, obj: Value, name: Value, value: Value) -> Value:
    """Set an attribute, bypassing the class's `__setattr__`."""
    if not isinstance(obj, ObjectValue):
        call.graph_break("object-setattr", function="object.__setattr__", type=obj.describe())
    obj.store(call.tracing, attribute_name(call.tracing, name), value)
    return call.constant(None)


@handles(*dict.fromkeys(kind.__delattr__ for kind in PLAIN_CHANGE))
def remove(call: Call, obj: Value, name: Value) -> Value:
    """Delete an attribute, bypassing the class's `__delattr__`."""
    if not isinstance(obj, ObjectValue):
        call.graph_break("object-setattr", function="object.__delattr__", type=obj.describe())
    obj.remove(call.tracing, attribute_name(call.tracing, name))
    return call.constant(None)


@handles(*dict.fromkeys(kind.__getattribute__ for kind in PLAIN_LOOKUP))
def look_up(call: Call, obj: Value, name: Value) -> Value:
    """Look an attribute up, bypassing the class's `__getattribute__`."""
    text = attribute_name(call.tracing, name)
    if not isinstance(obj, ObjectValue):
        return obj.get_attribute(call.tracing, text)
    found = obj.plain_attribute(call.tracing, text)
    if found is None:
        raise_missing(call.tracing, obj.cls, text)
    return found


@handles(vars)
def vars_of(call: Call, obj: Value | None = None) -> Value:
    """The `__dict__` of an object; without arguments, the local variables."""
    if obj is None:
        return local_variables(call)
    found = call.tracing.python.attribute_or_none(obj, "__dict__")
    if found is None:
        call.tracing.raise_error(TypeError, "vars() argument must have __dict__ attribute")
    return found


@handles(dir)
def names_of(call: Call, obj: Value) -> Value:
    """The names that an object and its classes have."""
    own_lookup = call.tracing.types.has_own(obj.python_type(), "__getattribute__")
    if not isinstance(obj, ObjectValue) or not inherits(obj.cls, "__dir__", object) or own_lookup:
        call.graph_break("dir-of-object", type=obj.describe())
    own = obj.open_dict(call.tracing).realise(call.tracing) if obj.cls.__dictoffset__ else {}
    return call.new_value(sorted({*dir(obj.cls), *(str(key.as_constant()) for key, _ in own.values())}))


@handles(locals)
def local_variables(call: Call) -> Value:
    """A dict of the calling frame's variables."""
    frame = call.tracing.stack.frames[-1]
    for name, (obj, source) in list(frame.lazy.items()):
        frame.variables.setdefault(name, call.tracing.objects.wrap(obj, source))
    found = {name: value for name, value in frame.variables.items() if not name.startswith(".")}
    for name, cell in frame.cells.items():
        if not name.startswith(".") and isinstance(cell, CellValue) and (cell.content or cell.real) is not None:
            found[name] = cell.get(call.tracing, name)
    code = program_of(frame.code)  # a resume function has the variables in another order
    order = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    return namespace_of(call.tracing, {name: found[name] for name in dict.fromkeys(order) if name in found})


@handles(globals)
def module_variables(call: Call) -> Value:
    """The module's variables, read only, as long as the frame has not changed them."""
    namespace = call.tracing.stack.frames[-1].namespace
    return call.tracing.objects.wrap(namespace, ObjectSource(namespace, "globals()"))
