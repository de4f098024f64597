"""Functions under functools.lru_cache."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import attrs

from armature.plugin_api import Value, assumed_constant

OF_THE_CACHE = frozenset({"cache_info", "cache_clear", "cache_parameters"})


@attrs.define(eq=False)
class CachedFunctionValue(Value):
    """A function of the program whose results are kept. What it computes is traced, once for the same constants.

    Python would not run it again for arguments that it knows, so one that does more than compute runs eagerly; and so
    does one that has kept another constant than it would compute now.
    """

    obj: Any
    inner: Value
    known: dict[Hashable, Value] = attrs.field(factory=dict)

    def python_type(self) -> type:
        return type(self.obj)

    def describe(self) -> str:
        return f"{self.obj.__wrapped__.__qualname__}, whose results are kept,"

    def as_object(self) -> object:
        return self.obj

    def key(self, tracer: Any) -> Hashable:
        tracer.guard_identity(self)
        return self.obj  # type: ignore[no-any-return]

    def get_attribute(self, tracer: Any, name: str) -> Value:
        if name in OF_THE_CACHE:
            return super().get_attribute(tracer, name)
        return self.inner if name == "__wrapped__" else self.inner.get_attribute(tracer, name)

    def call(self, tracer: Any, args: Any, kwargs: Any) -> Value:
        plain = all(value.is_constant for value in (*args, *kwargs.values()))
        given = [(name, value.python_type(), value.key(tracer)) for name, value in named(args, kwargs)] if plain else []
        key = tuple(given) if plain else None
        if key is not None and key in self.known:
            return self.known[key]
        changes, random = tracer.effects.count, tracer.fakes.mode.random
        tracer.fakes.mode.random = False
        made: Value = tracer.call(self.inner, args, kwargs)
        if tracer.effects.count != changes or tracer.fakes.random:
            tracer.graph_break("unsupported-call", callable=self.describe())
        tracer.fakes.mode.random = random
        if key is not None:
            if made.python_type() in (bool, int, float):  # not one that may change: what is kept does not
                made = tracer.constant(made.as_constant())
            if made.is_constant and not changes and not assumed_constant(self.obj.__wrapped__):
                self._agree(tracer, made, args, kwargs)
            self.known[key] = made
        return made

    def _agree(self, tracer: Any, made: Value, args: Any, kwargs: Any) -> None:
        """Ask the function itself, which keeps its answer: while guards hold, it would compute what it has kept."""
        given = [value.as_constant() for value in args]
        named = {name: value.as_constant() for name, value in kwargs.items()}
        expected = made.as_constant()
        try:
            kept = tracer.fakes.run_real(self.obj, *given, **named)
        except Exception:  # to be raised where the program calls it
            tracer.graph_break("unsupported-call", callable=self.describe())
        if type(kept) is not type(expected) or (kept is not expected and repr(kept) != repr(expected)):
            tracer.graph_break("unsupported-call", callable=self.describe())


def named(args: Any, kwargs: Any) -> list[tuple[Any, Value]]:
    """Arguments with their positions or names."""
    return [*enumerate(args), *kwargs.items()]


def of_program(obj: Any, source: Any, tracer: Any) -> Value:
    """A cached function of the program."""
    inner: Value = tracer.wrap(obj.__wrapped__, tracer.attr_source(source, "__wrapped__"))
    return CachedFunctionValue(obj, inner, source=source)
