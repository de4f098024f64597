"""Objects of builtin types whose methods handlers know, and what those have in common."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import attrs

from armature.introspection import MISSING, class_member
from armature.trace.handlers import MARK, Call, Handler
from armature.trace.values.base import Args, Kwargs, Value, attribute_of_builtin

if TYPE_CHECKING:
    from armature.trace.values.base import Rebuilding, Tracing, Write

F = TypeVar("F", bound=Callable[..., Any])


def check_call(tracer: Tracing, fn: Callable[..., Any], positional: int, kwargs: Kwargs, name: str) -> None:
    """Break the graph where a function in C refuses so many arguments, or these keywords: Python knows what to say."""
    if type(fn) is not FunctionType and not tracer.python.takes(fn, positional, kwargs):
        tracer.graph_break("function-arguments", function=name)


def fits(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> bool:
    """Whether a function takes these arguments."""
    try:
        inspect.signature(fn).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


# Methods that do what an operation of the language does, each type has some of them: how many arguments they take.
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
    """Mark a function `fn(tracer, owner, *args)` as what methods of a builtin type do to values of a class: a handler,
    which declines where their object is another value. One that gives nothing gives the program None."""

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
    """An object of a type written in C. What its methods do that are no operations of the language, handlers say
    (`method_of`)."""

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return attribute_of_builtin(tracer, self, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        method = class_member(self.python_type(), name)
        if method is not MISSING:
            found = tracer.calls.handled(method, (self, *args), kwargs)
            if found is not None:
                return found
            count, protocol = PROTOCOLS.get(name, (None, None))
            if protocol is not None and len(args) == count and not kwargs:
                found = protocol(tracer, self, *args)
                return tracer.constant(None) if found is None else found
        return super().call_method(tracer, name, args, kwargs)


@attrs.define(eq=False)
class ContainerValue(BuiltinObject):
    """An object of a builtin type that holds others."""

    plain_items: ClassVar[bool] = True

    @property
    def container(self) -> Value:
        """What iterating it looks at: of a view, the object that it shows."""
        return self

    def shape(self) -> tuple[int, int]:
        """How it has changed so far, which it must not while it is iterated. The same for what may change meanwhile."""
        return 0, 0

    def backwards(self, tracer: Tracing) -> Iterator[Value] | None:
        """The values that iterating backwards gives. None: its class has no way of its own to do that."""
        return None

    def filling(self, out: Rebuilding) -> Value:
        """What an object of a derived class is made of, or filled with."""
        return self

    def fill(self, out: Rebuilding, owner: Value) -> list[Write]:
        """What puts the contents into an object of a derived class that was made empty, by methods of the base."""
        return []

    def truth(self, tracer: Tracing) -> bool:
        return bool(self.length(tracer))
