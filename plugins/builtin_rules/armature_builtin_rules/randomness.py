"""Python's random number generators while tracing.

Numbers from a generator of the program, or from the one behind the functions of `random`, are drawn by the compiled
code before it calls the graph, in the program's order; tracing only knows their types. For a generator that the frame
makes or seeds, the state and so the numbers are known; it gets its final state at the end.
"""

from __future__ import annotations

import functools
import inspect
import math
import random
from collections.abc import Callable
from types import BuiltinMethodType
from typing import ClassVar

import attrs

from armature.plugin_api import (
    Args,
    BoundMethod,
    Call,
    CallSource,
    ConstantValue,
    Kwargs,
    ListValue,
    NotConstant,
    ObjectSource,
    PrecomputedNumber,
    PrecomputedValue,
    Rebuilding,
    SequenceValue,
    Source,
    Tracing,
    Value,
    ValueType,
    Write,
    call_before_graph,
    change_before_graph,
    compute_before_graph,
    handles,
    known_before_graph,
    number_now,
)

NUMBERS = frozenset({
    "random", "uniform", "triangular", "randint", "randrange", "getrandbits", "gauss", "normalvariate",
    "lognormvariate", "expovariate", "vonmisesvariate", "gammavariate", "betavariate", "paretovariate",
    "weibullvariate",
})  # fmt: skip
CONSTANTS_ONLY = frozenset({"triangular"})  # for equal bounds the result is one of them, a float or an int
MOST_ITEMS = 1024  # limit for the length of the population
SHARED: random.Random = random._inst
"""What the functions of the module `random` draw from."""


def state_of(generator: random.Random) -> tuple[object, ...]:
    """The state of a generator."""
    return generator.getstate()


def shuffled(generator: random.Random, items: tuple[object, ...]) -> list[object]:
    """The items in the order produced by `shuffle`."""
    made = list(items)
    generator.shuffle(made)
    return made


@attrs.define(eq=False)
class RandomValue(Value):
    """A random.Random. copy: a generator in the current state, if that is known; the state of `real` varies from call
    to call, so it is not. example: draws the example values for `real` while tracing."""

    copy: random.Random | None
    real: random.Random | None = None
    example: random.Random | None = None

    mutable: ClassVar[bool] = True

    def python_type(self) -> type:
        return random.Random

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return BoundMethod(self, name) if name in METHODS else super().get_attribute(tracer, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in METHODS:
            return super().call_method(tracer, name, args, kwargs)
        if name in STATE:
            found: Value = STATE[name](tracer, self, *args, **kwargs)
            return found
        if name in CHOSEN:
            args, kwargs = positional_arguments(tracer, name, args, kwargs)
        copy = self.copy
        if copy is None:
            known = self.before_graph(tracer, name, args, kwargs)
            if known is not None:
                return known
            copy = self.pin(tracer, name)
        tracer.mutate(self)
        draw: Callable[..., Value] = CHOSEN.get(name, drawn)
        before = copy.getstate()
        try:
            return draw(tracer, copy, name, args, kwargs)
        except NotConstant:
            copy.setstate(before)
            raise
        except Exception as error:
            tracer.raise_real(error)

    def before_graph(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value | None:
        """Draw before the graph; None if the drawn value must be known."""
        call = as_call(tracer, name, args, kwargs)
        if call is None:
            return None
        function, operands = call
        example = self.drawing(tracer)
        before = example.getstate()
        try:
            found = function(example, *map(number_now, operands))
        except Exception as error:
            if example.getstate() == before and all(operand.is_constant for operand in operands):
                tracer.raise_real(error)
            tracer.graph_break("random-call-fails", function=name)
        made = call_before_graph(tracer, function, (self, *operands), found)
        if name != "shuffle":
            return made
        given = args[0]
        if not isinstance(given, ListValue) or not isinstance(made, SequenceValue):
            tracer.graph_break("random-choice-from", type=given.describe())
        tracer.mutate(given)
        given.items[:] = made.items
        return tracer.constant(None)

    def drawing(self, tracer: Tracing) -> random.Random:
        """The example generator, for a call before the graph."""
        if self.example is None:
            self.example = generator_in_state(self.real.getstate())  # type: ignore[union-attr]
        change_before_graph(tracer, self, state_of, random.Random.setstate)
        return self.example

    def pin(self, tracer: Tracing, name: str) -> random.Random:
        """A copy of the generator in its state at the start of the frame, which is guarded. Not for the shared one,
        whose state always differs."""
        if self.real is None or self.source is None or self.real is SHARED or not tracer.request.fullgraph:
            tracer.graph_break("random-state-unknown", function=name)
        state = self.real.getstate()
        tracer.guards.equal(CallSource(self.source, state_of, "{}.getstate()"), state)
        self.copy = self.example or generator_in_state(state)
        return self.copy

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(generator_in_state)
        out.constant(self.copy.getstate())  # type: ignore[union-attr]
        out.call(1)

    def writes(self, out: Rebuilding) -> list[Write]:
        if self.copy is None:
            return []
        return [Write(random.Random.setstate, (self, out.value(self.copy.getstate())))]


def positional_arguments(tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The arguments of a Python method, by position where possible. Breaks if they do not fit."""
    try:
        taken = inspect.signature(getattr(SHARED, name)).bind(*args, **kwargs)
    except TypeError:
        tracer.graph_break("function-arguments", function=name)
    return taken.args, taken.kwargs


def as_call(tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> tuple[Callable[..., object], list[Value]] | None:
    """The function and arguments for a draw whose result type is known; otherwise None."""
    if not all(value.is_constant for value in kwargs.values()):
        return None
    items = []
    if name not in NUMBERS:
        numbers = numbers_of(tracer, args[0]) if args else None
        if numbers is None:
            return None
        items, args = [ConstantValue(numbers)], args[1:]
    function: Callable[..., object] = shuffled if name == "shuffle" else getattr(random.Random, name)
    if kwargs:
        function = functools.partial(function, **{key: value.as_constant() for key, value in kwargs.items()})
    changing = name in NUMBERS and name not in CONSTANTS_ONLY
    kept = [arg if changing and known_before_graph(arg) else ConstantValue(arg.as_constant()) for arg in args]
    return function, [*items, *kept]


def numbers_of(tracer: Tracing, items: Value) -> tuple[object, ...] | None:
    """The items of a list, tuple or range of constant numbers of one type; otherwise None."""
    if not issubclass(items.python_type(), (list, tuple, range)) or items.length(tracer) > MOST_ITEMS:
        return None
    held = tracer.unpack(items)
    if not all(item.is_constant for item in held):
        return None
    plain = tuple(item.as_constant() for item in held)
    return plain if set(map(type, plain)) in (set(), {int}, {float}) else None


def generator_in_state(state: tuple[object, ...]) -> random.Random:
    """A generator in the given state."""
    made = random.Random(0)
    made.setstate(state)
    return made


def drawn(tracer: Tracing, copy: random.Random, name: str, args: Args, kwargs: Kwargs) -> Value:
    """The result of a method for constants."""
    plain = [arg.as_constant() for arg in args]
    named = {key: value.as_constant() for key, value in kwargs.items()}
    result: Value = tracer.constant(getattr(copy, name)(*plain, **named))
    return result


def choice(tracer: Tracing, copy: random.Random, name: str, args: Args, kwargs: Kwargs) -> Value:
    """`choice(sequence)`."""
    (sequence,) = args
    place = copy.choice(range(sequence.length(tracer)))
    chosen: Value = sequence.get_item(tracer, tracer.constant(place))
    return chosen


def sample(tracer: Tracing, copy: random.Random, name: str, args: Args, kwargs: Kwargs) -> Value:
    """`sample(population, k)` and `choices(population, k=1)`: draws positions, then selects the items."""
    population, *rest = args
    if not issubclass(population.python_type(), (list, tuple, range, str)):
        tracer.graph_break("random-choice-from", type=population.describe())
    plain = [arg.as_constant() for arg in rest]
    named = {key: value.as_constant() for key, value in kwargs.items()}
    places = getattr(copy, name)(range(population.length(tracer)), *plain, **named)
    return ListValue([population.get_item(tracer, tracer.constant(place)) for place in places])


def shuffle(tracer: Tracing, copy: random.Random, name: str, args: Args, kwargs: Kwargs) -> Value:
    """`shuffle(list)`."""
    (items,) = args
    if not isinstance(items, ListValue):
        tracer.graph_break("random-choice-from", type=items.describe())
    order = list(range(len(items.items)))
    copy.shuffle(order)
    tracer.mutate(items)
    items.items[:] = [items.items[place] for place in order]
    nothing: Value = tracer.constant(None)
    return nothing


def seed(tracer: Tracing, generator: RandomValue, *args: Value, **kwargs: Value) -> Value:
    """`seed(a)`: from here on the state is known."""
    plain = [arg.as_constant() for arg in args]
    named = {key: value.as_constant() for key, value in kwargs.items()}
    if (plain[0] if plain else named.get("a")) is None:
        tracer.graph_break("seed-from-system", function="seed")
    copy = random.Random(0)
    try:
        copy.seed(*plain, **named)
    except Exception as error:
        tracer.raise_real(error)
    tracer.mutate(generator)
    generator.copy = copy
    return tracer.constant(None)


def getstate(tracer: Tracing, generator: RandomValue) -> Value:
    """`getstate()`."""
    if generator.copy is not None:
        return tracer.as_value(generator.copy.getstate())
    example = generator.drawing(tracer)
    made = call_before_graph(tracer, state_of, (generator,), example.getstate())
    return made


def setstate(tracer: Tracing, generator: RandomValue, state: Value) -> Value:
    """`setstate(state)`, with a constant or a result of `getstate()` in this frame."""
    if isinstance(state, PrecomputedValue) and state.kind is tuple and generator.real is not None:
        generator.drawing(tracer).setstate(state.example)
        call_before_graph(tracer, random.Random.setstate, (generator, state), None)
        generator.copy = None
    else:
        try:
            copy = generator_in_state(state.as_constant())
        except Exception as error:
            tracer.raise_real(error)
        tracer.mutate(generator)
        generator.copy = copy
    return tracer.constant(None)


CHOSEN: dict[str, Callable[..., Value]] = {"choice": choice, "sample": sample, "choices": sample, "shuffle": shuffle}
STATE: dict[str, Callable[..., Value]] = {"seed": seed, "getstate": getstate, "setstate": setstate}
METHODS = frozenset({*NUMBERS, *CHOSEN, *STATE, "randbytes"})
BOUND = tuple(getattr(random, name) for name in METHODS if type(getattr(random, name)) is BuiltinMethodType)
FUNCTIONS = tuple(getattr(random.Random, name) for name in METHODS if inspect.isfunction(getattr(random.Random, name)))


@handles(*FUNCTIONS)
def method(call: Call, generator: Value, *args: Value, **kwargs: Value) -> Value | None:
    """A Python method, such as `random.uniform` of the shared generator."""
    if not isinstance(generator, RandomValue):
        return None
    return generator.call_method(call.tracing, call.fn.__name__, args, kwargs)


@handles(*BOUND)
def bound(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """A function of `random` that is a C method."""
    generator = call.tracing.objects.wrap(SHARED, ObjectSource(SHARED, "random._inst"))
    return generator.call_method(call.tracing, call.fn.__name__, args, kwargs)


# Functions of numbers whose result type only depends on the argument types.
NUMERIC = (
    abs, int, float, round, min, max, math.sqrt, math.exp, math.log, math.log2, math.log10, math.log1p, math.expm1,
    math.sin, math.cos, math.tan, math.asin, math.acos, math.atan, math.atan2, math.sinh, math.cosh, math.tanh,
    math.floor, math.ceil, math.trunc, math.pow, math.fabs, math.fmod, math.hypot, math.degrees, math.radians,
    math.copysign, math.isfinite, math.isnan, math.isinf,
)  # fmt: skip


@handles(*NUMERIC)
def numeric(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """A function of numbers, one of which was drawn."""
    if kwargs or not any(isinstance(arg, PrecomputedNumber) for arg in args):
        return None
    if call.fn in (min, max) and (len(args) < 2 or len({arg.python_type() for arg in args}) > 1):
        return None
    return compute_before_graph(call.tracing, call.fn, args)


@handles(random.Random)
def make(call: Call, seed: Value | None = None) -> Value | None:
    """`random.Random(seed)`."""
    if seed is None or not seed.is_constant or seed.as_constant() is None:
        call.graph_break("seed-from-system", function="random.Random")
    try:
        return RandomValue(random.Random(seed.as_constant()))
    except TypeError as error:
        call.tracing.raise_real(error)


def of_program(obj: random.Random, source: Source, tracer: Tracing) -> Value:
    """A generator of the program."""
    made: Value = tracer.objects.remember(obj, RandomValue(None, obj, source=source))
    return made


VALUE_TYPES = (ValueType(random.Random, of_program),)
