"""numpy scalars that vary from call to call: they become constants, except in arithmetic with tensors and as sizes.

To torch's operators such a scalar is its Python number, which can be a graph input. Any other use makes it a guarded
constant, because its dtype matters to `torch.tensor`, and numpy computes with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from armature.plugin_api import (
    TAKES_NUMBERS,
    Args,
    CallSource,
    ConstantValue,
    Kwargs,
    ListValue,
    SliceValue,
    Source,
    Tracing,
    TupleValue,
    Value,
    ValueType,
)
from armature.plugin_api import numpy_layer as layer

# Calls that take ints as sizes, positions and lengths, alone or in lists, and treat numpy ints in the same way.
TAKE_INTS = frozenset({
    "arange", "chunk", "empty", "expand", "full", "getitem", "narrow", "new_empty", "new_full", "new_ones", "new_zeros",
    "ones", "pow", "rand", "randn", "repeat", "reshape", "roll", "select", "tile", "unflatten", "view", "zeros",
})  # fmt: skip


class NumpyScalar(ConstantValue):
    """A scalar that is known."""

    def as_argument(self, tracer: Tracing) -> object:
        """The Python number as which torch treats the scalar, unless it treats it as a float."""
        scalar: Any = self.value
        if type(scalar) in layer.TAKEN_FOR_FLOATS:
            tracer.graph_break("numpy-number-argument", type=type(scalar).__name__)
        return scalar.item()


@attrs.define(eq=False, slots=False)
class NumpyNumber(NumpyScalar):
    """A scalar of the program. Only its type is guarded until its value is used."""

    guard: Callable[[], None] = attrs.field(kw_only=True)
    number: Callable[[], Value] = attrs.field(kw_only=True)  # the Python number as which torch's operators treat it
    whole: bool = attrs.field(kw_only=True)

    @property
    def value(self) -> object:
        """The scalar, guarded."""
        self.guard()
        return self._scalar

    @value.setter
    def value(self, scalar: object) -> None:
        self._scalar = scalar

    def python_type(self) -> type:
        return type(self._scalar)


def of_program(scalar: object, source: Source, tracer: Tracing) -> Value:
    """The value of a numpy int or float of the program."""
    number = layer.number_in(scalar)
    whole = isinstance(number, int)
    if not tracer.sizes.changes(number, source) or (whole and number >= 2**63):
        return constant(scalar, source, tracer)
    tracer.recorder.rewrites[numbers_for] = None
    inside = CallSource(source, layer.number_in, "{}.item()")
    made = functools.partial(tracer.sizes.of_program, tracer, number, inside)
    return NumpyNumber(
        scalar, source=source, whole=whole, guard=lambda: tracer.guards.equal(source, scalar), number=made
    )


def constant(scalar: object, source: Source, tracer: Tracing) -> Value:
    """The value of a scalar that is a guarded constant."""
    tracer.guards.equal(source, scalar)
    return NumpyScalar(scalar, source=source)


def dtype(obj: Any, source: Source, tracer: Tracing) -> Value:
    """The value of a dtype."""
    tracer.guards.equal(source, obj)
    return ConstantValue(obj, source=source)


def numbers_for(name: str, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The arguments of a torch call, with scalars replaced by Python numbers if the call does arithmetic, or takes
    sizes."""
    if name in TAKE_INTS:
        take = ints_in
    elif name.strip("_") in TAKES_NUMBERS:
        take = number_of
    else:
        return args, kwargs
    return tuple(map(take, args)), {name: take(value) for name, value in kwargs.items()}


def number_of(value: Value) -> Value:
    """The Python number for a scalar; other values unchanged."""
    return value.number() if isinstance(value, NumpyNumber) else value


def ints_in(value: Value) -> Value:
    """The value with Python numbers for its int scalars, including those in lists, plain tuples and slices."""
    if isinstance(value, NumpyNumber):
        return value.number() if value.whole else value
    if isinstance(value, SliceValue):
        start, stop, step = map(ints_in, value.parts)
        parts = (start, stop, step)
        return value if same(parts, value.parts) else attrs.evolve(value, parts=parts)
    if isinstance(value, ListValue) or (isinstance(value, TupleValue) and value.kind is tuple):
        items = [ints_in(item) for item in value.items]
        return value if same(items, value.items) else value.like(items)
    return value


def same(new: Iterable[Value], old: Iterable[Value]) -> bool:
    """Whether nothing was replaced."""
    return all(one is other for one, other in zip(new, old, strict=True))


def fresh(scalar: object, tracer: Tracing) -> Value:
    """The value of a scalar that tracing has computed."""
    return NumpyScalar(scalar)


def fresh_dtype(obj: object, tracer: Tracing) -> Value:
    """The value of a dtype that tracing has computed."""
    return ConstantValue(obj)


def by_name(kinds: Iterable[type]) -> list[type]:
    """Types in an order that is always the same."""
    return sorted(kinds, key=lambda kind: kind.__name__)


VALUE_TYPES = (
    *(ValueType(kind, of_program, fresh=fresh, constant=True) for kind in by_name(layer.NUMBERS)),
    *(ValueType(kind, constant, fresh=fresh, constant=True) for kind in by_name(layer.SCALARS - layer.NUMBERS)),
    *(ValueType(kind, dtype, fresh=fresh_dtype, constant=True) for kind in by_name(layer.DTYPE_TYPES)),
)
