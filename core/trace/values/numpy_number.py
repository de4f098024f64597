"""Scalars of numpy that are another one from call to call: constants, but for arithmetic with tensors.

To torch's operators such a scalar is the number of Python in it, which the graph can be given. Everything else takes it
as a constant, guarded from there on: its dtype decides what `torch.tensor` makes of it, and numpy computes with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from armature.frame.sources import CallSource, Source
from armature.torch_abi.numpy import number_in
from armature.trace.values.base import Value
from armature.trace.values.constant import ConstantValue
from armature.trace.values.floats import KEEPS, float_of_program
from armature.trace.values.precomputed import SAME_WITH_TENSORS

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace
    from armature.trace.values.base import Args, Kwargs

TAKE_NUMBERS = KEEPS | frozenset(SAME_WITH_TENSORS)


@attrs.define(eq=False, slots=False)
class NumpyNumber(ConstantValue):
    """A scalar of the program, of which no more than the type is guarded until its value is asked for."""

    guard: Callable[[], None] = attrs.field(kw_only=True)
    number: Callable[[], Value] = attrs.field(kw_only=True)  # what an operator of torch takes it for

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


def numpy_number(tracer: Trace, scalar: Any, source: Source) -> Value:
    """The value of a scalar of the program: of numpy's ints and floats."""
    number, sizes = number_in(scalar), tracer.sizes
    whole = isinstance(number, int)
    changes = sizes.number_changes(number, source) if whole else sizes.float_changes(number, source)
    if not changes or (whole and number >= 2**63):
        tracer.guards.equal(source, scalar)
        return ConstantValue(scalar, source=source)
    tracer.guards.type_is(source, type(scalar))
    inside = CallSource(source, number_in, "number_in")
    return NumpyNumber(
        scalar,
        source=source,
        guard=lambda: tracer.guards.equal(source, scalar),
        number=lambda: sizes.of_int(number, inside) if whole else float_of_program(tracer, number, inside),
    )


def numbers_for(fn: Any, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The arguments of a call of torch, with numbers of Python for scalars where the call does arithmetic."""
    given = (*args, *kwargs.values())
    name = fn if isinstance(fn, str) else getattr(fn, "__name__", "")
    if name not in TAKE_NUMBERS or not any(isinstance(value, NumpyNumber) for value in given):
        return args, kwargs
    taken = [value.number() if isinstance(value, NumpyNumber) else value for value in given]
    return taken[: len(args)], dict(zip(kwargs, taken[len(args) :], strict=True))
