"""Classes, and how objects are made: `type`, `super`, `object`, `__new__` and `__init__` of builtin types."""

from __future__ import annotations

import builtins
import collections
import operator
from collections.abc import Callable
from types import CellType, GenericAlias, MethodType, UnionType
from typing import List, TypeVar, Union  # noqa: UP035

import attrs

from armature.plugin_api import (
    TUPLE_METHODS,
    Args,
    Call,
    CellValue,
    ClassValue,
    DerivedObjectValue,
    DictValue,
    Kwargs,
    MethodValue,
    NotConstant,
    ObjectValue,
    Tracing,
    TupleValue,
    Value,
    bind_attribute,
    find_in_class,
    handles,
    inherits,
    is_named_tuple,
    is_written_in_c,
    namesake,
    rely_on_class,
)

BUILTIN_TYPES: tuple[type, ...] = (
    collections.defaultdict, collections.OrderedDict, dict, list, set, frozenset, tuple, int, float, complex, str,
    bytes,
)  # fmt: skip
NEW: dict[Callable[..., object], type] = {kind.__new__: kind for kind in BUILTIN_TYPES if "__new__" in vars(kind)}


@handles(type)
def class_of(call: Call, obj: Value, *rest: Value, **named: Value) -> Value:
    """The class of an object. With more arguments it would make a class."""
    if rest or named:
        call.graph_break("class-by-type")
    return call.new_value(obj.python_type())


@handles(callable)
def is_callable(call: Call, obj: Value) -> Value:
    """Whether an object's class has `__call__`."""
    rely_on_class(call.tracing, obj.python_type(), "__call__")
    return call.constant(find_in_class(obj.python_type(), "__call__") is not None)


@handles(builtins.__build_class__)
def class_statement(call: Call, body: Value, name: Value, *bases: Value, **keywords: Value) -> Value:
    """A class statement breaks the graph, and Python makes the class."""
    call.graph_break("class-statement", name=name.as_constant())


@handles(object)
def plain_object(call: Call) -> Value:
    """`object()`: a unique object."""
    return ObjectValue(object)


@handles(MethodType)
def bound_method(call: Call, function: Value, owner: Value) -> Value:
    """A function bound to its first argument."""
    return MethodValue(function, owner, explicit=True)


@handles(CellType)
def cell(call: Call, *content: Value) -> Value:
    """A cell, as used by closures."""
    return CellValue(content[0] if content else None)


# The attributes of `super` objects themselves, computed from the class behind which they look and the object's class.
SUPERS_OWN: dict[str, Callable[[type, type], type]] = {
    "__thisclass__": lambda cls, kind: cls,
    "__self_class__": lambda cls, kind: kind,
}


@attrs.define(eq=False)
class SuperValue(Value):
    """`super(cls, owner)`."""

    cls: type
    owner: Value

    def python_type(self) -> type:
        return super

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        of_class = self.owner if isinstance(self.owner, ClassValue) and issubclass(self.owner.cls, self.cls) else None
        kind = self.owner.python_type() if of_class is None else of_class.cls
        found = find_in_class(kind, name, self.cls)
        rely_on_class(tracer, kind, name, after=self.cls)
        if found is None and name == "__self__":
            return self.owner
        if found is None and name in SUPERS_OWN:
            return tracer.as_value(SUPERS_OWN[name](self.cls, kind))
        if found is None:
            tracer.raise_error(AttributeError, f"'super' object has no attribute '{name}'")
        if of_class is not None:
            return of_class.own(tracer, found, name, found.holder)
        return bind_attribute(tracer, self.owner, found.holder, found, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        return self.get_attribute(tracer, name).call(tracer, args, kwargs)


@handles(super)
def super_of(call: Call, *args: Value) -> Value:
    """`super()`, which takes class and object from the frame, and `super(cls, owner)`."""
    if len(args) == 1 or (args and args[1].python_type() is type(None)):
        call.graph_break("super-of-no-object")
    cls, owner = args if args else class_and_owner(call)
    if not isinstance(cls, ClassValue):
        call.graph_break("super-of-no-class", type=cls.describe())
    held = owner.cls if isinstance(owner, ClassValue) else owner.python_type()
    if cls.cls not in (*held.__mro__, *owner.python_type().__mro__):
        try:
            super(cls.cls, namesake(held))
        except TypeError as error:
            call.tracing.raise_real(error)
    return SuperValue(cls.cls, owner)


def class_and_owner(call: Call) -> tuple[Value, Value]:
    """The class and first argument that Python's compiler stores for `super()`."""
    frame = call.tracing.stack.frames[-1]
    name, holder = frame.code.co_varnames[0], frame.cells.get("__class__")
    if not isinstance(holder, CellValue):
        call.tracing.raise_error(RuntimeError, "super(): __class__ cell not found")
    if name in frame.lazy and name not in frame.variables:
        frame.variables[name] = call.tracing.objects.wrap(*frame.lazy.pop(name))
    own = frame.cells.get(name)
    owner = own.get(call.tracing, name) if isinstance(own, CellValue) else frame.variables[name]
    return holder.get(call.tracing, "__class__"), owner


@handles(object.__new__)
def new_object(call: Call, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    """An object without attributes."""
    if not isinstance(cls, ClassValue):
        call.graph_break("new-of-no-class", function="object.__new__", type=cls.describe())
    if call.tracing.types.base_of(cls.cls) is not None:  # "object.__new__(C) is not safe, use dict.__new__()"
        call.fold(object.__new__, cls.cls)
    return ObjectValue(cls.cls)


@handles(*NEW)
def new_of_builtin(call: Call, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    """`kind.__new__` of a builtin type, which may make objects of a derived class."""
    kind = NEW[call.fn]
    if not isinstance(cls, ClassValue) or kind not in cls.cls.__mro__:
        call.graph_break("new-of-no-class", function=f"{kind.__name__}.__new__", type=cls.describe())
    native = call.tracing.types.base_of(cls.cls) or kind
    if native.__hash__ is None:  # mutable: `__init__` fills it
        args, kwargs = (), {}
    base = call.inline(native, *args, **kwargs)
    if cls.cls is native:
        return base
    if is_named_tuple(cls.cls) and isinstance(base, TupleValue):
        rely_on_class(call.tracing, cls.cls, *TUPLE_METHODS)
        return TupleValue(base.items, cls.cls)
    made = DerivedObjectValue(cls.cls, base=base)
    if isinstance(base, DictValue):
        base.owner = made
    return made


@handles(type.__call__)
def make(call: Call, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    """`type.__call__`, as a metaclass calls it."""
    if not isinstance(cls, ClassValue):
        call.graph_break("new-of-no-class", function="type.__call__", type=cls.describe())
    if is_written_in_c(cls.cls):
        return call.tracing.calls.call_class(cls, args, kwargs)
    return call.tracing.calls.instantiate(cls, args, kwargs)


@handles(type.__init__)
def initialise_class(call: Call, /, *args: Value, **kwargs: Value) -> Value:
    """Do nothing."""
    return call.constant(None)


@handles(object.__init__)
def initialise(call: Call, obj: Value, /, *args: Value, **kwargs: Value) -> Value:
    """`object.__init__`, which accepts other arguments if `__new__` is overridden (`object_init` in C)."""
    kind = obj.python_type()
    if args or kwargs:
        rely_on_class(call.tracing, kind, "__init__", "__new__")
        refusing = "object" if not inherits(kind, "__init__", object) else kind.__name__
        if refusing == "object" or inherits(kind, "__new__", object):
            text = f"{refusing}.__init__() takes exactly one argument (the instance to initialize)"
            call.tracing.raise_error(TypeError, text)
    return call.constant(None)


@handles(object.__init_subclass__, object.__dict__["__init_subclass__"])
def subclass_made(call: Call, *args: Value) -> Value:
    """Do nothing."""
    if not all(isinstance(arg, ClassValue) for arg in args) or len(args) > 1:
        call.graph_break("function-arguments", function="object.__init_subclass__")
    return call.constant(None)


@handles(object.__eq__)
def equal(call: Call, left: Value, right: Value) -> Value:
    """An object equals itself."""
    return call.constant(True if call.tracing.python.identical(left, right) else NotImplemented)


@handles(object.__ne__)
def unequal(call: Call, left: Value, right: Value) -> Value:
    """The opposite of `__eq__`."""
    known = left.binary(call.tracing, "__eq__", right)
    if known is not None:
        return call.constant(not known.truth(call.tracing))
    return call.constant(False if call.tracing.python.identical(left, right) else NotImplemented)


# Types of parametrised types and unions. The older spellings have types of their own.
UNIONS = (UnionType, type(Union[int, str]))  # noqa: UP007
ALIASES = (GenericAlias, type(List[int]), TypeVar, *UNIONS)  # noqa: UP006


@handles(type.__or__)
def union(call: Call, left: Value, right: Value) -> Value | None:
    """`int | None` and the like."""
    if not is_type(left) and not is_type(right):
        return None
    try:
        made = operator.or_(left.as_object(), right.as_object())
    except (NotConstant, TypeError):
        return None
    return call.new_value(made) if isinstance(made, UNIONS) else None


def is_type(value: Value) -> bool:
    """Whether the value is a class whose metaclass does not override `|`, or a type annotation."""
    if isinstance(value, ClassValue):
        return inherits(type(value.cls), "__or__", type)
    return issubclass(value.python_type(), ALIASES)
