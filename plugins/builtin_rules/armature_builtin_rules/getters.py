"""operator's itemgetter, attrgetter and methodcaller while tracing."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import ClassVar, cast

import attrs

from armature.plugin_api import (
    Args,
    BoundMethod,
    Call,
    Kwargs,
    Rebuilding,
    Source,
    Tracing,
    Value,
    ValueType,
    handles,
)
from armature_builtin_rules.polyfills.operator import attrgetter, itemgetter, methodcaller

STAND_INS: dict[type, Callable[..., object]] = {
    operator.itemgetter: itemgetter,
    operator.attrgetter: attrgetter,
    operator.methodcaller: methodcaller,
}


@attrs.define(eq=False)
class GetterValue(Value):
    """A getter object. function: does the same in Python."""

    kind: type
    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    function: Value

    mutable: ClassVar[bool] = True
    slots = frozenset({"__call__"})

    def python_type(self) -> type:
        kind: type = self.kind
        return kind

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        if len(args) != 1 or kwargs:
            tracer.raise_real(refusal(self.kind("name"), len(args), kwargs))
        return self.function.call(tracer, args, {})

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        return (
            self.call(tracer, args, kwargs) if name == "__call__" else super().call_method(tracer, name, args, kwargs)
        )

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name == "__call__":
            return BoundMethod(self, name)
        if name in ("__class__", "__doc__", "__module__"):
            return tracer.as_value(getattr(self.kind("name"), name))
        try:
            getattr(self.kind("name"), name)
        except AttributeError as error:
            tracer.raise_real(error)
        return super().get_attribute(tracer, name)

    def rebuild(self, out: Rebuilding) -> None:
        out.spread(self.kind, self.args, self.kwargs)


def refusal(fn: Callable[..., object], count: int, keywords: Iterable[str]) -> TypeError:
    """The error of a C callable about too many, too few, or named arguments."""
    try:
        fn(*(None,) * count, **dict.fromkeys(keywords))
    except TypeError as error:
        return error
    raise AssertionError(f"{fn} takes these")


@handles(*STAND_INS)
def make(call: Call, *args: Value, **kwargs: Value) -> Value:
    """`operator.itemgetter(0)`."""
    if not args:
        call.tracing.raise_real(refusal(call.fn, 0, kwargs))
    kind = cast(type, call.fn)
    return GetterValue(kind, args, kwargs, call.polyfill(STAND_INS[kind], *args, **kwargs))


def of_program(obj: object, source: Source, tracer: Tracing) -> Value | None:
    """A getter of the program."""
    reduced = obj.__reduce__()
    if isinstance(reduced, str):
        return None
    maker: object = reduced[0]
    args, keywords = reduced[1], {}
    if isinstance(maker, functools.partial):  # a methodcaller with keyword arguments
        args, keywords = (*maker.args, *args), maker.keywords
    tracer.guards.same(source, obj)
    given = tuple(tracer.as_value(arg) for arg in args)
    named = {name: tracer.as_value(value) for name, value in keywords.items()}
    made = GetterValue(type(obj), given, named, tracer.calls.inline_python(STAND_INS[type(obj)], given, named))
    made.source = source
    return made


VALUE_TYPES = tuple(ValueType(kind, of_program) for kind in STAND_INS)
