"""Numbers and arrays from numpy's generators: `numpy.random.rand()`, methods of `numpy.random.RandomState` and of
`numpy.random.Generator`.

As those of Python's generators, they are drawn before the graph is called, and tracing only knows their types. An array
is an input of the graph, with the sizes that it has in each call. Generators that the frame makes are left to numpy.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable
from typing import Protocol, cast

import attrs
import torch

from armature.plugin_api import (
    Args,
    BoundMethod,
    BuiltinValue,
    Call,
    CallSource,
    Kwargs,
    NotConstant,
    ObjectSource,
    Source,
    TracedTensor,
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
from armature.plugin_api import numpy_layer as layer
from armature_torch_handlers.array_numbers import NumbersAsTensors
from armature_torch_handlers.array_types import Elements
from armature_torch_handlers.arrays import ArrayValue

# Their results have the sizes that the arguments ask for.
NAMES = frozenset({
    "random", "random_sample", "rand", "randn", "randint", "uniform", "normal", "standard_normal", "beta", "gamma",
    "exponential", "lognormal", "laplace", "poisson", "binomial", "integers", "permutation", "choice", "triangular",
    "logistic", "gumbel", "chisquare", "geometric", "dirichlet", "multinomial",
})  # fmt: skip
KINDS = existing("numpy.random.RandomState", "numpy.random.Generator")
DRAWS = [getattr(kind, name) for kind in KINDS for name in sorted(NAMES) if hasattr(kind, name)]
SEEDS = existing("numpy.random.seed")
SHARED = existing("numpy.random.mtrand._rand")  # from which the functions of `numpy.random` draw
OF_MERSENNE_TWISTER = "MT19937"  # the only kind of state that `seed` sets anew


class BitGenerator(Protocol):
    """The source of a generator's bits."""

    state: object


class Generator(Protocol):
    """What is used of a numpy.random.RandomState, or of a numpy.random.Generator, which has `bit_generator` instead."""

    bit_generator: BitGenerator

    def get_state(self, legacy: bool) -> object: ...

    def set_state(self, state: object) -> None: ...

    def seed(self, seed: object) -> None: ...


def state_of(generator: Generator) -> object:
    """The state of a generator."""
    return generator.get_state(legacy=False) if hasattr(generator, "get_state") else generator.bit_generator.state


def set_state(generator: Generator, state: object) -> None:
    """Put a generator in a state."""
    if hasattr(generator, "set_state"):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state


@attrs.define(eq=False)
class GeneratorValue(Value):
    """A generator of the program. example: one in the same state, which draws the numbers that tracing sees."""

    real: Generator
    example: Generator

    def python_type(self) -> type:
        return type(self.real)

    def has(self, name: str) -> bool:
        """Whether it has a method that is drawn before the graph."""
        return (name in NAMES or name == "seed") and hasattr(self.real, name)

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return BoundMethod(self, name) if self.has(name) else super().get_attribute(tracer, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if not self.has(name):
            return super().call_method(tracer, name, args, kwargs)
        return tracer.as_value(getattr(type(self.real), name)).call(tracer, (self, *args), kwargs)


@handles(*DRAWS)
def draw(call: Call, generator: Value, *args: Value, **kwargs: Value) -> Value | None:
    """A number or an array; None if an argument is not known before the graph."""
    if not isinstance(generator, GeneratorValue):
        return None
    if not all(map(known_before_graph, args)) and not all(arg.is_constant for arg in args):
        return None
    try:
        named = {name: value.as_object() for name, value in kwargs.items()}
    except NotConstant:
        return None
    function: Callable[..., object] = functools.partial(call.fn, **named) if named else call.fn
    found = example_of(call, generator, function, args)
    if type(found) in (int, float):
        return call_before_graph(call.tracing, function, (generator, *args), found)
    if found is not None and all(arg.is_constant for arg in args):
        return array_before_graph(call.tracing, function, (generator, *args), cast(Elements, found))
    call.graph_break("random-call-fails", function=call.fn.__name__)


def example_of(call: Call, generator: GeneratorValue, function: Callable[..., object], operands: Args) -> object:
    """What a call gives now. Breaks the graph if it raises, or gives what torch has no dtype for."""
    change_before_graph(call.tracing, generator, state_of, set_state)
    before = state_of(generator.example)
    try:
        drawn = function(generator.example, *map(number_now, operands))
        known = type(drawn) in (int, float, type(None)) or cast(Elements, drawn).dtype.name in layer.DTYPES
    except Exception:
        known = False
    if known:
        return drawn
    set_state(generator.example, before)
    call.graph_break("random-call-fails", function=call.fn.__name__)


def as_tensor(drawn: object) -> torch.Tensor:
    """A tensor over an array's memory, or of a number of numpy."""
    return torch.from_numpy(layer.numpy.asarray(drawn))


def array_before_graph(
    tracer: Tracing, function: Callable[..., object], operands: tuple[Value, ...], example: Elements
) -> Value:
    """The array or the number of numpy that a call before the graph gives, as an input of the graph."""
    memory = layer.memory_of(layer.numpy.asarray(example))
    if memory is None:
        tracer.graph_break("array-dtype", dtype=example.dtype)
    drawn = CallSource(tracer.precalls.add(function, operands), as_tensor, "torch.from_numpy({})")
    made = TracedTensor(tracer.fakes.of(memory), None, memory, source=drawn)
    tracer.objects.by_fake[id(made.fake)] = made
    shadow = layer.shadow_of(memory, tuple(memory.shape))
    tracer.recorder.rewrites[NumbersAsTensors(tracer, ArrayValue)] = None
    return ArrayValue(made, shadow if isinstance(example, layer.numpy.ndarray) else shadow[()])


@handles(*existing("numpy.random.RandomState.seed"))
def seed(call: Call, generator: Value, seed: Value | None = None) -> Value | None:
    """Seed a generator before the graph, with a known number. None: left to numpy, as without a number."""
    if not isinstance(generator, GeneratorValue) or seed is None or type_of_constant(seed) is not int:
        return None
    example_of(call, generator, call.fn, (seed,))
    call_before_graph(call.tracing, call.fn, (generator, seed), None)
    return call.constant(None)


@handles(*SEEDS)
def seed_shared(call: Call, seed: Value | None = None) -> Value | None:
    """`numpy.random.seed(number)`."""
    if seed is None or type(SHARED[0]._bit_generator).__name__ != OF_MERSENNE_TWISTER:
        return None
    held = call.tracing.objects.wrap(SHARED[0], ObjectSource(SHARED[0], "numpy.random.mtrand._rand"))
    return held.call_method(call.tracing, "seed", (seed,), {})


def type_of_constant(value: Value) -> type | None:
    """The type of a constant, None for other values."""
    return value.python_type() if value.is_constant else None


def of_program(obj: object, source: Source, tracer: Tracing) -> Value:
    """A generator of the program."""
    made = GeneratorValue(cast(Generator, obj), cast(Generator, copy.deepcopy(obj)), source=source)
    return tracer.objects.remember(obj, made)


def function_of_program(obj: Callable[..., object], source: Source, tracer: Tracing) -> Value:
    """A function of `numpy.random`."""
    tracer.guards.same(source, obj)
    return BuiltinValue(obj, source=source)


def value_types() -> Iterable[ValueType]:
    """The value type of generators, and of functions of `numpy.random`, if numpy is there."""
    functions = {type(fn) for fn in SEEDS}
    return [ValueType(kind, of_program) for kind in KINDS] + [
        ValueType(kind, function_of_program) for kind in functions
    ]
