"""What `min` or `max` chooses among numbers and 0-d tensors, before tracing knows which of them it is."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NoReturn

import attrs
import torch

from armature.plugin_api import (
    Args,
    ConstantValue,
    Kwargs,
    Rebuilding,
    TracedTensor,
    Tracing,
    TupleValue,
    UserRaised,
    Value,
)

ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
METHODS = {f"__{name}__": (name, False) for name in ARITHMETIC} | {f"__r{name}__": (name, True) for name in ARITHMETIC}


def fits(item: Value, dtype: torch.dtype) -> bool:
    """Whether choosing between the item and numbers in tensors of a dtype results in a number of that dtype."""
    if isinstance(item, TracedTensor):
        one = all(type(size) is int and size == 1 for size in item.fake.shape)
        return item.kind is None and one and item.fake.dtype is dtype
    number = item.value if isinstance(item, ConstantValue) else None
    if not isinstance(number, (int, float)) or type(number) not in (int, float, bool):
        return False
    if isinstance(number, int) and not dtype.is_floating_point and not -(1 << 63) <= number < 1 << 63:
        return False
    return torch.result_type(torch.empty((), dtype=dtype, device="meta"), number) is dtype


def common_dtype(items: Iterable[Value]) -> torch.dtype | None:
    """The dtype of Python's ints or floats as tensors that all of the items fit; None if there is none."""
    every = list(items)
    dtypes = (torch.int64, torch.get_default_dtype())
    return next((dtype for dtype in dtypes if all(fits(item, dtype) for item in every)), None)


def told_apart(options: Sequence[Value]) -> bool:
    """Whether tensors of one dtype can represent the options, without making equal numbers of those that differ."""
    dtype = common_dtype(options)
    numbers = {option.value for option in options if isinstance(option, ConstantValue)}
    return dtype is not None and len({torch.tensor(number, dtype=dtype).item() for number in numbers}) == len(numbers)


def without_axes(items: Iterable[Value]) -> bool:
    """Whether no item is a tensor with axes, even of size 1: the shape of a result would depend on the choice."""
    return all(item.fake.dim() == 0 for item in items if isinstance(item, TracedTensor))


@attrs.define(eq=False)
class ChoiceValue(Value):
    """One of several numbers and tensors with one element, at a position that the graph computes.

    Operators and functions of tensors take it as a tensor, which is the same to them; the program gets the object that
    was chosen. Whatever depends on which kind of object it is breaks the graph. test: the call, for reports.
    """

    options: TupleValue
    position: TracedTensor
    tracer: Tracing
    test: str

    mutable: ClassVar[bool] = True
    is_choice: ClassVar[bool] = True
    slots = frozenset({"__bool__", "__neg__", *METHODS})

    def contents(self) -> object:
        return (self.options, self.position)

    def python_type(self) -> type:
        self.unknown()

    def unknown(self) -> NoReturn:
        """Break the graph where it matters which object it is."""
        self.tracer.graph_break("data-dependent-branch", test=self.test)

    def as_constant(self) -> NoReturn:
        self.unknown()

    def describe(self) -> str:
        return f"the choice of `{self.test}`"

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if name not in METHODS or not isinstance(other, ConstantValue):
            self.unknown()
        operator_name, swapped = METHODS[name]
        operate = tracer.python.operate
        pairs = [(other, option) if swapped else (option, other) for option in self.options.items]
        return self.of_each(lambda: [operate(operator_name, *pair) for pair in pairs])

    def unary(self, tracer: Tracing, name: str) -> Value:
        return self.of_each(lambda: [tracer.python.operate_unary("neg", option) for option in self.options.items])

    def of_each(self, compute: Callable[[], list[Value]]) -> Value:
        """The choice among what is computed of each object; the graph breaks if that raises for one of them, which
        may not be the chosen one."""
        try:
            made = compute()
        except UserRaised:
            self.unknown()
        if common_dtype(made) is None:
            self.unknown()
        return attrs.evolve(self, options=TupleValue(made))

    def truth(self, tracer: Tracing) -> bool:
        self.unknown()

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        self.unknown()

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        self.unknown()

    def as_tensor(self) -> Value:
        """The chosen number as a tensor without axes."""
        if not without_axes(self.options.items):
            self.unknown()
        return self.chosen_number()

    def chosen_number(self) -> Value:
        """The chosen number in a tensor, also where the program has written to that tensor meanwhile."""
        call = self.tracer.graph.call
        made = self.options.items[0]
        for place, option in enumerate(self.options.items[1:], 1):
            here = call(operator.eq, (self.position, ConstantValue(place)), {})
            made = call(torch.where, (here, option, made), {})
        return made

    def as_argument(self, tracer: Tracing) -> object:
        return self.as_tensor().as_argument(tracer)

    def as_fake(self, tracer: Tracing) -> object:
        return self.as_tensor().as_fake(tracer)

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(operator.getitem)
        out.load(self.options)
        out.load(self.position)
        out.call(2)


def options_of(item: Value) -> Sequence[Value]:
    """What an operand of `min` or `max` may be: the options of an earlier choice, or itself."""
    return item.options.items if isinstance(item, ChoiceValue) else (item,)
