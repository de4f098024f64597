"""Functions under functools.lru_cache."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NoReturn

import attrs

from armature.plugin_api import (
    Args,
    AttrSource,
    GraphBreak,
    Identity,
    Kwargs,
    Source,
    Tracing,
    Value,
    alike,
    as_begun,
    assumed_constant,
    holds,
    is_trusted,
    kept,
    places_of,
    written,
)

OF_THE_CACHE = frozenset({"cache_info", "cache_clear", "cache_parameters"})


@attrs.define(eq=False)
class CachedFunctionValue(Value):
    """A function of the program whose results are kept. What it computes is traced, once for the same arguments.

    Python would not run it again for arguments that it knows. So one that does more than compute runs eagerly, and the
    result is what the function itself gives, which may have been changed since: another input of the frame. One that is
    called with an object that the frame has made computes its result.
    """

    obj: Any
    inner: Value
    source: Source = attrs.field(kw_only=True)
    known: dict[Hashable, Value] = attrs.field(factory=dict)

    def python_type(self) -> type:
        return type(self.obj)

    def describe(self) -> str:
        return f"{self.obj.__wrapped__.__qualname__}, whose results are kept,"

    def as_object(self) -> Any:
        return self.obj

    def key(self, tracer: Tracing) -> Hashable:
        self.rely_on(tracer)
        key: Hashable = self.obj
        return key

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in OF_THE_CACHE:
            return super().get_attribute(tracer, name)
        return self.inner if name == "__wrapped__" else self.inner.get_attribute(tracer, name)

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        given = named(args, kwargs)
        key = None
        if not any(value.is_symbolic for _, value in given):
            key = tuple((name, value.python_type(), value.key(tracer)) for name, value in given)
            if key in self.known:
                return self.known[key]
        made = self._computed(tracer, args, kwargs)
        trusted = is_trusted(self.obj.__wrapped__) or assumed_constant(self.obj.__wrapped__)
        number = key is None and (made.is_constant or made.is_symbolic)
        if not (trusted or number or made_anew(key)):
            for _, value in given:  # a size, from now on a constant
                value.key(tracer)
            made = self._kept(tracer, made, args, kwargs)
        if key is not None:
            self.known[key] = made
        return made

    def _computed(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        """What the function computes. One that does more than that runs in Python, which does it once."""
        before, random = (tracer.effects.count, written(tracer), len(tracer.precalls.calls)), tracer.fakes.mode.random
        tracer.fakes.mode.random = False
        try:
            made: Value = self.inner.call(tracer, args, kwargs)
        except GraphBreak as stop:  # what follows it would run, and not be kept
            stop.places = places_of(tracer.frames)
            raise
        after = (tracer.effects.count, written(tracer), len(tracer.precalls.calls))
        if after != before or tracer.fakes.random:
            self._refuse(tracer, "does more than compute them")
        tracer.fakes.mode.random = random
        if made.python_type() in (bool, int, float) and made.is_constant:  # not one that may change
            return tracer.constant(made.as_constant())
        return made

    def _kept(self, tracer: Tracing, made: Value, args: Args, kwargs: Kwargs) -> Value:
        """What the function itself gives. It is asked before the frame begins, where it would compute the same."""
        if not as_begun(tracer):
            now = kept(tracer, AttrSource(self.source, "__wrapped__"), args, kwargs)
            if now is None or not holds(made, now[1]):
                self._refuse(tracer, "may see what the frame or a context has changed by now")
        found = kept(tracer, self.source, args, kwargs)
        room = self.obj.cache_parameters()["maxsize"]
        if found is None:
            self._refuse(tracer, "raises, or is given something that the frame has put together")
        if not (made.is_constant or room is None or len(self.known) < room):
            self._refuse(tracer, "has no room for all that the frame asks for")
        source, obj = found
        if not made.is_constant:
            return tracer.wrap(obj, source)
        if not alike(obj, made.as_constant()):
            self._refuse(tracer, "would compute another one now")
        tracer.guards.equal(source, obj)
        return made

    def _refuse(self, tracer: Tracing, why: str) -> NoReturn:
        tracer.graph_break("cached-function", function=self.describe(), reason=why)


def made_anew(key: Any) -> bool:
    """Whether a key is of an object that the frame has made, which Python can't have seen before."""
    if isinstance(key, Identity):
        return key.value.source is None
    return isinstance(key, tuple) and any(map(made_anew, key))


def named(args: Args, kwargs: Kwargs) -> list[tuple[Any, Value]]:
    """Arguments with their positions or names."""
    return [*enumerate(args), *kwargs.items()]


def of_program(obj: Any, source: Source, tracer: Tracing) -> Value:
    """A cached function of the program."""
    inner: Value = tracer.wrap(obj.__wrapped__, AttrSource(source, "__wrapped__"))
    return CachedFunctionValue(obj, inner, source=source)
