"""Weak references while tracing: what they refer to lives as long as the frame runs."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any

import attrs

from armature.plugin_api import (
    BoundMethod,
    Call,
    Identity,
    NotConstant,
    ReferentSource,
    Referring,
    Value,
    ValueType,
    handles,
)


@attrs.define(eq=False)
class WeakReferenceValue(Value):
    """A weak reference. `referent`: None for one that is dead."""

    referent: Value | None
    callback: Value | None = None

    mutable = True

    def python_type(self) -> type:
        return weakref.ref

    def call(self, tracer: Any, args: Any, kwargs: Any) -> Value:
        if args or kwargs:
            tracer.graph_break("unsupported-call", callable="a weak reference with arguments")
        return tracer.constant(None) if self.referent is None else self.referent

    def as_object(self) -> object:
        if self.referent is None:
            raise NotConstant(self)
        return weakref.ref(self.referent.as_object())  # type: ignore[arg-type]

    def as_key(self) -> object:
        if self.referent is None:
            raise NotConstant(self)
        return weakref.ref(self.referent.as_key())  # type: ignore[arg-type]

    def key(self, tracer: Any) -> Hashable:
        """Living references are as equal as what they refer to."""
        if self.referent is None:
            return Identity(self)
        try:
            held: Any = self.as_object()
        except NotConstant:
            return Referring(self.referent.key(tracer))
        if self.source is None:  # the frame has made it: of another object next time, if nothing speaks against it
            tracer.guard_identity(self.referent)
        return held  # type: ignore[no-any-return]

    def get_attribute(self, tracer: Any, name: str) -> Value:
        return BoundMethod(self, name) if name == "__call__" else super().get_attribute(tracer, name)

    def call_method(self, tracer: Any, name: str, args: Any, kwargs: Any) -> Value:
        return (
            self.call(tracer, args, kwargs) if name == "__call__" else super().call_method(tracer, name, args, kwargs)
        )

    def rebuild(self, out: Any) -> None:
        if self.referent is None:
            out.cannot(self)
        out.null_function(weakref.ref)
        out.load(self.referent)
        if self.callback is not None:
            out.load(self.callback)
        out.call(1 if self.callback is None else 2)


@handles(weakref.ref, weakref.proxy)
def make_reference(call: Call, referent: Value, *callback: Value) -> Value | None:
    """A reference; a proxy of an object that lives stands for the object."""
    plain = not callback or (callback[0].is_constant and callback[0].as_constant() is None)
    if call.fn is weakref.proxy:
        return referent if plain else None
    call.tracer.held_weakly[referent] = None
    return WeakReferenceValue(referent, None if plain else callback[0])


def of_program(obj: Any, source: Any, tracer: Any) -> Value:
    """A weak reference of the program."""
    held = obj()
    where = ReferentSource(source)
    if held is None:
        tracer.wrap(None, where)
        return WeakReferenceValue(None, source=source)
    return WeakReferenceValue(tracer.wrap(held, where), source=source)


VALUE_TYPES = (ValueType(weakref.ref, of_program),)
