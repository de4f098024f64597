"""Weak references while tracing. When objects die is only known when the frame runs; tracing knows which objects refer
to them. If it can't be sure that one is alive, the frame runs eagerly."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Hashable

import attrs

from armature.plugin_api import (
    Args,
    BoundMethod,
    Call,
    Identity,
    Kwargs,
    NotConstant,
    Rebuilding,
    ReferentSource,
    Referring,
    Source,
    Tracing,
    Value,
    ValueType,
    handles,
)
from armature_builtin_rules.weak_lifetimes import refer, rely_on_life


@attrs.define(eq=False)
class WeakReferenceValue(Value):
    """A weak reference. `referent`: None for a dead one. kind: its class, which is another one for the values of a
    `WeakValueDictionary`."""

    referent: Value | None
    callback: Value | None = None
    kind: type = weakref.ref

    mutable = True
    slots = frozenset({"__call__", "__hash__"})

    def python_type(self) -> type:
        return self.kind

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        if args or kwargs:
            tracer.graph_break("function-arguments", function="weakref.ref")
        if self.referent is None:
            return tracer.constant(None)
        rely_on_life(tracer, self.referent)
        return self.referent

    def as_object(self) -> weakref.ref[object]:
        if self.referent is None:
            raise NotConstant(self)
        return weakref.ref(self.referent.as_object())

    def as_key(self) -> object:
        if self.referent is None:
            raise NotConstant(self)
        return weakref.ref(self.referent.as_key())

    def key(self, tracer: Tracing) -> Hashable:
        """Live references are equal if their objects are."""
        if self.referent is None:
            return Identity(self)
        try:
            held: Hashable = self.as_object()
        except NotConstant:
            return Referring(self.referent.key(tracer))
        if self.source is None:  # a reference made in the frame has no guard, so the next call may have another object
            self.referent.rely_on(tracer)
        return held

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return BoundMethod(self, name) if name == "__call__" else super().get_attribute(tracer, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        return (
            self.call(tracer, args, kwargs) if name == "__call__" else super().call_method(tracer, name, args, kwargs)
        )

    def rebuild(self, out: Rebuilding) -> None:
        if self.referent is None:
            out.cannot(self)
        out.null_function(weakref.ref)
        out.load(self.referent)
        if self.callback is not None:
            out.load(self.callback)
        out.call(1 if self.callback is None else 2)


@handles(weakref.ref)
def make_reference(call: Call, referent: Value, *callback: Value) -> Value:
    """`weakref.ref(...)`."""
    kind = referent.python_type()
    if not kind.__weakrefoffset__:
        call.tracing.raise_error(TypeError, f"cannot create weak reference to '{kind.__name__}' object")
    told = bool(callback) and not (callback[0].is_constant and callback[0].as_constant() is None)
    own = any(frame.code.co_filename == functools.__file__ for frame in call.tracing.stack.frames[-2:])
    refer(call.tracing, referent, told and not own)  # functools itself only inspects its dispatch cache
    return WeakReferenceValue(referent, callback[0] if told else None)


@handles(weakref.proxy, weakref.KeyedRef)
def leave_to_python(call: Call, referent: Value, *_: Value) -> None:
    """Run the frame eagerly, because any use of a proxy reveals whether the object is alive."""
    refer(call.tracing, referent, told=True)


def of_program(obj: weakref.ref[object], source: Source, tracer: Tracing) -> Value:
    """A weak reference of the program."""
    held = obj()
    where = ReferentSource(source)
    if held is None:
        tracer.objects.wrap(None, where)
        return WeakReferenceValue(None, kind=type(obj), source=source)
    return WeakReferenceValue(tracer.objects.wrap(held, where), kind=type(obj), source=source)


VALUE_TYPES = (ValueType(weakref.ref, of_program), ValueType(weakref.KeyedRef, of_program))
