"""Objects of builtin types whose methods stand in tables, and calls of what stands there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from armature.trace.values.base import Args, Kwargs, Value, attribute_of_builtin

if TYPE_CHECKING:
    from armature.trace.values.base import Tracing


def check_call(tracer: Tracing, fn: Callable[..., Any], positional: int, kwargs: Kwargs, name: str) -> None:
    """Break the graph where a function in C refuses so many arguments, or these keywords: Python knows what to say."""
    if type(fn) is not FunctionType and not tracer.python.takes(fn, positional, kwargs):
        tracer.graph_break("function-arguments", function=name)


def invoke(tracer: Tracing, fn: Callable[..., Any], name: str, owner: Args, args: Args, kwargs: Kwargs) -> Value | None:
    """`fn(tracer, *owner, *args, **kwargs)`; arguments that do not fit break the graph: Python knows what to say."""
    try:
        found: Value | None = fn(tracer, *owner, *args, **kwargs)
    except TypeError:
        if fits(fn, (tracer, *owner, *args), kwargs):
            raise  # an error of the tracer's own
        tracer.graph_break("method-arguments" if owner else "function-arguments", function=name)
    return found


def fits(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> bool:
    """Whether a function takes these arguments."""
    try:
        inspect.signature(fn).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


# Methods that do what an operation of the language does; each type has some of them.
PROTOCOLS: dict[str, Callable[..., Value | None]] = {
    "__len__": lambda tracer, self: tracer.constant(self.length(tracer)),
    "__iter__": lambda tracer, self: tracer.python.iterator(self),
    "__reversed__": lambda tracer, self: tracer.as_value(reversed).call(tracer, (self,), {}),
    "__contains__": lambda tracer, self, item: tracer.constant(self.contains(tracer, item)),
    "__getitem__": lambda tracer, self, key: self.get_item(tracer, key),
    "__setitem__": lambda tracer, self, key, value: self.set_item(tracer, key, value),
    "__delitem__": lambda tracer, self, key: self.delete_item(tracer, key),
    "__hash__": lambda tracer, self: tracer.as_value(hash).call(tracer, (self,), {}),
}


@attrs.define(eq=False)
class ContainerValue(Value):
    """An object of a builtin type that holds others. methods: what those do that are no operations of the language."""

    methods: ClassVar[Mapping[str, Callable[..., Value | None]]] = {}
    plain_items: ClassVar[bool] = True

    def truth(self, tracer: Tracing) -> bool:
        return bool(self.length(tracer))

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return attribute_of_builtin(tracer, self, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        method = self.methods.get(name) or PROTOCOLS.get(name)
        if method is None or not hasattr(self.python_type(), name):
            return super().call_method(tracer, name, args, kwargs)
        result = invoke(tracer, method, name, (self,), args, kwargs)
        return tracer.constant(None) if result is None else result
