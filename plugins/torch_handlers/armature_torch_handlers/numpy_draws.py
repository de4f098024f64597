"""Numbers from numpy's legacy generators: `numpy.random.rand()` and methods of `numpy.random.RandomState`.

As those of Python's generators, they are drawn before the graph is called, and tracing only knows their types. Calls
that give arrays, and generators that the frame makes or seeds, are left to numpy.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable
from typing import Protocol, cast

import attrs

from armature.plugin_api import (
    Args,
    BoundMethod,
    Call,
    Kwargs,
    Source,
    Tracing,
    Value,
    ValueType,
    call_before_graph,
    change_before_graph,
    existing,
    handles,
    known_before_graph,
    number_now,
)

NAMES = (
    "random", "random_sample", "rand", "randn", "randint", "uniform", "normal", "standard_normal", "beta", "gamma",
    "exponential", "lognormal", "laplace", "poisson", "binomial",
)  # fmt: skip
KINDS = existing("numpy.random.RandomState")
DRAWS = existing(*(f"numpy.random.RandomState.{name}" for name in NAMES))
# What gives an array for numbers, rather than a number.
ARRAYS = {"size", "dtype"}
MOST = {"random": 0, "random_sample": 0, "rand": 0, "randn": 0, "standard_normal": 0, "poisson": 1, "exponential": 1}


class Generator(Protocol):
    """What is used of a numpy.random.RandomState."""

    def get_state(self, legacy: bool) -> object: ...

    def set_state(self, state: object) -> None: ...


def state_of(generator: Generator) -> object:
    """The state of a generator."""
    return generator.get_state(legacy=False)


def set_state(generator: Generator, state: object) -> None:
    """Put a generator in a state."""
    generator.set_state(state)


@attrs.define(eq=False)
class GeneratorValue(Value):
    """A generator of the program. example: one in the same state, which draws the numbers that tracing sees."""

    real: Generator
    example: Generator

    def python_type(self) -> type:
        return type(self.real)

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return BoundMethod(self, name) if name in NAMES else super().get_attribute(tracer, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in NAMES:
            return super().call_method(tracer, name, args, kwargs)
        return tracer.as_value(getattr(type(self.real), name)).call(tracer, (self, *args), kwargs)


@handles(*DRAWS)
def draw(call: Call, generator: Value, *args: Value, **kwargs: Value) -> Value | None:
    """One number; None for arrays."""
    name = call.fn.__name__
    if not isinstance(generator, GeneratorValue) or len(args) > MOST.get(name, 2) or not ARRAYS.isdisjoint(kwargs):
        return None
    if not all(map(known_before_graph, args)) or not all(value.is_constant for value in kwargs.values()):
        return None
    function: Callable[..., object] = call.fn
    if kwargs:
        function = functools.partial(function, **{key: value.as_constant() for key, value in kwargs.items()})
    change_before_graph(call.tracing, generator, state_of, set_state)
    before = state_of(generator.example)
    try:
        found = function(generator.example, *map(number_now, args))
    except Exception:
        found = None
    if type(found) not in (int, float):
        generator.example.set_state(before)
        call.graph_break("random-call-fails", function=name)
    return call_before_graph(call.tracing, function, (generator, *args), found)


def of_program(obj: object, source: Source, tracer: Tracing) -> Value:
    """A generator of the program."""
    made = GeneratorValue(cast(Generator, obj), cast(Generator, copy.deepcopy(obj)), source=source)
    return tracer.objects.remember(obj, made)


def value_types() -> Iterable[ValueType]:
    """The value type of generators, if numpy is there."""
    return [ValueType(kind, of_program) for kind in KINDS]
