"""`contextvars.ContextVar`: what it holds in the context of a call is guarded, and set when the frame ends."""

from __future__ import annotations

import contextvars
from collections.abc import Hashable
from contextvars import ContextVar
from typing import cast

import attrs

from armature.plugin_api import MISSING, Args, BoundMethod, CallSource, Kwargs, Source, Tracing, Value, ValueType, Write

METHODS = {"get": 1, "set": 1, "reset": 1}  # and the most arguments of each


def content_of(variable: ContextVar[object]) -> object:
    """What a variable holds in this context, MISSING if nothing."""
    return variable.get(MISSING)


def content_or_default(variable: ContextVar[object]) -> object:
    """What it holds, else the default that it was made with, MISSING if it has none."""
    try:
        return variable.get()
    except LookupError:
        return MISSING


@attrs.define(eq=False)
class ContextVariableValue(Value):
    """A context variable of the program. content: what the frame has set; None as long as it has set nothing."""

    obj: ContextVar[object]
    source: Source = attrs.field(kw_only=True)
    content: Value | None = None

    mutable = True
    slots = frozenset({"__hash__"})

    def python_type(self) -> type:
        return ContextVar

    def as_object(self) -> ContextVar[object]:
        return self.obj

    def key(self, tracer: Tracing) -> Hashable:
        return self.obj

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name == "name":
            return tracer.constant(self.obj.name)
        return BoundMethod(self, name) if name in METHODS else super().get_attribute(tracer, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if kwargs or len(args) > METHODS.get(name, -1) or (name != "get" and not args):
            return super().call_method(tracer, name, args, kwargs)
        if name == "get":
            return self.get(tracer, *args)
        if name == "set":
            before, self.content = self.content, args[0]
            tracer.mutate(self)
            return TokenValue(self, before)
        token = args[0]
        if not isinstance(token, TokenValue) or token.variable is not self or token.used:
            return super().call_method(tracer, name, args, kwargs)
        token.used, self.content = True, token.before
        return tracer.constant(None)

    def get(self, tracer: Tracing, default: Value | None = None) -> Value:
        """What it holds, else a default."""
        if self.content is not None:
            return self.content
        read, words = (content_or_default, "{}.get()") if default is None else (content_of, "{}.get(...)")
        now = read(self.obj)
        if now is not MISSING:
            return tracer.objects.wrap(now, CallSource(self.source, read, words))
        tracer.guards.answers(read, (self.obj,), {}, MISSING)
        return tracer.raise_value(LookupError, (self,)) if default is None else default

    def writes(self, out: object) -> list[Write]:
        return [] if self.content is None else [Write(ContextVar.set, (self, self.content))]


@attrs.define(eq=False)
class TokenValue(Value):
    """What `set` returns. before: what the frame had set before, None for what the program had. used: for `reset`,
    which takes a token once."""

    variable: ContextVariableValue
    before: Value | None
    used: bool = False

    def python_type(self) -> type:
        return contextvars.Token


def of_program(obj: object, source: Source, tracer: Tracing) -> Value:
    """A context variable of the program."""
    tracer.guards.same(source, obj)
    return tracer.objects.remember(obj, ContextVariableValue(cast("ContextVar[object]", obj), source=source))


VALUE_TYPES = (ValueType(ContextVar, of_program),)
