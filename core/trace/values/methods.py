"""Objects of builtin types whose methods are implemented by handlers, and their common base."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import attrs

from armature.introspection import MISSING, class_member
from armature.trace.base import Args, Kwargs, Value, attribute_of_builtin
from armature.trace.handlers import MARK, Call, Handler

if TYPE_CHECKING:
    from armature.trace.base import Rebuilding, Tracing, Write

F = TypeVar("F", bound=Callable[..., Any])


def check_call(tracer: Tracing, fn: Callable[..., Any], positional: int, kwargs: Kwargs, name: str) -> None:
    """Break the graph if a C function refuses this many arguments or these keywords; Python words the error."""
    if type(fn) is not FunctionType and not tracer.python.takes(fn, positional, kwargs):
        tracer.graph_break("function-arguments", function=name)


def fits(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> bool:
    """Whether a function takes these arguments."""
    try:
        inspect.signature(fn).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


# Slots that may also be called as methods, with their number of arguments.
PROTOCOLS: dict[str, tuple[int, Callable[..., Value | None]]] = {
    "__len__": (0, lambda tracer, self: tracer.constant(self.length(tracer))),
    "__iter__": (0, lambda tracer, self: tracer.python.iterator(self)),
    "__reversed__": (0, lambda tracer, self: tracer.python.reversed_iterator(self)),
    "__contains__": (1, lambda tracer, self, item: tracer.constant(self.contains(tracer, item))),
    "__getitem__": (1, lambda tracer, self, key: self.get_item(tracer, key)),
    "__setitem__": (2, lambda tracer, self, key, value: self.set_item(tracer, key, value)),
    "__delitem__": (1, lambda tracer, self, key: self.delete_item(tracer, key)),
    "__hash__": (0, lambda tracer, self: tracer.python.builtin(hash, self)),
    "__next__": (0, lambda tracer, self: tracer.python.builtin(next, self)),
}


def method_of(kind: type[Value], *targets: Callable[..., object]) -> Callable[[F], F]:
    """Mark a function `fn(tracer, owner, *args)` as the implementation of methods of a builtin type for a value class.
    It becomes a handler that declines for other values. A result of None becomes the program's None."""

    def mark(fn: F) -> F:
        @functools.wraps(fn)
        def run(call: Call, owner: Value, /, *args: Value, **kwargs: Value) -> Value | None:
            if not isinstance(owner, kind):
                return None
            made: Value | None = fn(call.tracing, owner, *args, **kwargs)
            return call.constant(None) if made is None else made

        vars(fn)[MARK] = Handler(targets, run)
        return fn

    return mark


@attrs.define(eq=False)
class BuiltinObject(Value):
    """An object of a C type. Handlers (`method_of`) implement its methods that are not operations of the language."""

    slots = frozenset({"__hash__"})

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return attribute_of_builtin(tracer, self, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        method = class_member(self.python_type(), name)
        if method is not MISSING:
            found = tracer.calls.handled(method, (self, *args), kwargs)
            if found is not None:
                return found
            count, protocol = PROTOCOLS.get(name, (None, None))
            if protocol is not None and name in self.slots and len(args) == count and not kwargs:
                found = protocol(tracer, self, *args)
                return tracer.constant(None) if found is None else found
        return super().call_method(tracer, name, args, kwargs)


@attrs.define(eq=False)
class ContainerValue(BuiltinObject):
    """An object of a builtin type that holds others."""

    plain_items: ClassVar[bool] = True
    # The classes of `iter(obj)` and `reversed(obj)`, unless `semantics/iteration.py` knows them by the object's type.
    iterators: ClassVar[tuple[type, type] | None] = None

    @property
    def container(self) -> Value:
        """The object that iteration reads: for a view, the container that it shows."""
        return self

    def shape(self) -> tuple[int, int]:
        """Modification counters, which must not change during iteration. Constant if changes are allowed."""
        return 0, 0

    def filling(self, out: Rebuilding) -> Value:
        """The value from which an object of a derived class is made or filled."""
        return self

    def fill(self, out: Rebuilding, owner: Value) -> list[Write]:
        """The writes that fill an empty object of a derived class, by methods of the base."""
        return []
