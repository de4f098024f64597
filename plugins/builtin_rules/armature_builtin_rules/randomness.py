"""random.Random while tracing: numbers are drawn from a copy, whose state the object has at the end of the frame.

For an object of the program that state is guarded, so the numbers are constants of the compiled code; one that the
frame makes from a seed needs no guard.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar

import attrs

from armature.plugin_api import BoundMethod, Call, CallSource, ListValue, NotConstant, Value, ValueType, Write, handles

DRAWN = frozenset({
    "random", "uniform", "triangular", "randint", "randrange", "getrandbits", "randbytes", "gauss", "normalvariate",
    "lognormvariate", "expovariate", "vonmisesvariate", "gammavariate", "betavariate", "paretovariate",
    "weibullvariate", "seed",
})  # fmt: skip


SHARED: random.Random = random._inst  # type: ignore[attr-defined]
"""What the functions of the module `random` draw from."""


def state_of(generator: random.Random) -> tuple[Any, ...]:
    """The state of a generator."""
    return generator.getstate()


@attrs.define(eq=False)
class RandomValue(Value):
    """A random.Random. copy: one in the state of this point of the trace; None: nothing was drawn yet from `real`."""

    copy: random.Random | None
    real: random.Random | None = None

    mutable: ClassVar[bool] = True

    def python_type(self) -> type:
        return random.Random

    def get_attribute(self, tracer: Any, name: str) -> Value:
        if name in DRAWN or name in CHOSEN:
            return BoundMethod(self, name)
        return super().get_attribute(tracer, name)

    def call_method(self, tracer: Any, name: str, args: Any, kwargs: Any) -> Value:
        if name not in DRAWN and name not in CHOSEN:
            return super().call_method(tracer, name, args, kwargs)
        if name == "seed" and (not args or args[0].as_constant() is None):
            tracer.graph_break("unsupported-operation", operation="seeding from the system", type=self.describe())
        tracer.mutate(self)
        draw: Callable[..., Any] = CHOSEN.get(name, drawn)
        copy = self.current(tracer)
        before = copy.getstate()
        try:
            found: Value = draw(tracer, copy, name, args, kwargs)
        except NotConstant:
            copy.setstate(before)
            raise
        except (TypeError, ValueError, IndexError) as error:
            tracer.raise_real(error)
        return found

    def current(self, tracer: Any) -> random.Random:
        """The copy to draw from."""
        if self.copy is None:
            if self.real is None or self.real is SHARED:  # whose state is another one in each call
                tracer.graph_break("unsupported-operation", operation="drawing", type="Python's global generator")
            state = self.real.getstate()
            tracer.guards.equal(CallSource(self.source, state_of, "state_of"), state)  # type: ignore[arg-type]
            self.copy = made_in(state)
        return self.copy

    def rebuild(self, out: Any) -> None:
        out.null_function(made_in)
        out.constant(self.copy.getstate())  # type: ignore[union-attr]
        out.call(1)

    def writes(self, out: Any) -> list[Write]:
        state = self.current(out.tracer).getstate()
        return [Write(random.Random.setstate, (self, out.value(state)))]


def made_in(state: Any) -> random.Random:
    """A generator in a state."""
    made = random.Random(0)
    made.setstate(state)
    return made


def drawn(tracer: Any, copy: random.Random, name: str, args: Any, kwargs: Any) -> Value:
    """What a method gives for constants."""
    plain = [arg.as_constant() for arg in args]
    named = {key: value.as_constant() for key, value in kwargs.items()}
    result: Value = tracer.constant(getattr(copy, name)(*plain, **named))
    return result


def choice(tracer: Any, copy: random.Random, name: str, args: Any, kwargs: Any) -> Value:
    """`choice(sequence)`."""
    (sequence,) = args
    place = copy.choice(range(sequence.length(tracer)))
    chosen: Value = sequence.get_item(tracer, tracer.constant(place))
    return chosen


def sample(tracer: Any, copy: random.Random, name: str, args: Any, kwargs: Any) -> Value:
    """`sample(population, k)` and `choices(population, k=1)`: as many positions, then what stands there."""
    population, *rest = args
    if not issubclass(population.python_type(), (list, tuple, range, str)):
        tracer.graph_break("unsupported-argument", type=population.describe())
    plain = [arg.as_constant() for arg in rest]
    named = {key: value.as_constant() for key, value in kwargs.items()}
    places = getattr(copy, name)(range(population.length(tracer)), *plain, **named)
    return ListValue([population.get_item(tracer, tracer.constant(place)) for place in places])


def shuffle(tracer: Any, copy: random.Random, name: str, args: Any, kwargs: Any) -> Value:
    """`shuffle(list)`."""
    (items,) = args
    if not isinstance(items, ListValue):
        tracer.graph_break("unsupported-argument", type=items.describe())
    order = list(range(len(items.items)))
    copy.shuffle(order)
    tracer.mutate(items)
    items.items[:] = [items.items[place] for place in order]
    nothing: Value = tracer.constant(None)
    return nothing


CHOSEN: dict[str, Callable[..., Value]] = {"choice": choice, "sample": sample, "choices": sample, "shuffle": shuffle}


@handles(random.Random)
def make(call: Call, seed: Value | None = None) -> Value | None:
    """`random.Random(seed)`."""
    if seed is None or not seed.is_constant or seed.as_constant() is None:
        call.graph_break("unsupported-operation", operation="seeding from the system", type="a random.Random")
    return RandomValue(random.Random(seed.as_constant()))  # type: ignore[arg-type]


def of_program(obj: random.Random, source: Any, tracer: Any) -> Value:
    """A generator of the program."""
    made: Value = tracer.remember(obj, RandomValue(None, obj, source=source))
    return made


VALUE_TYPES = (ValueType(random.Random, of_program),)
