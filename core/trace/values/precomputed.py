"""Numbers computed before the graph is called: draws from Python's generators, and arithmetic on them.

Tracing knows only their current values. They enter operators as 0-d tensors; where the program needs the number itself,
the graph breaks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import torch

from armature.frame.sources import ItemSource, Source
from armature.torch_abi.memory import on_host
from armature.torch_abi.symbols import is_unbacked
from armature.trace.base import Args, BoundMethod, Kwargs, NotConstant, Value
from armature.trace.slots import COMPARISONS, by_method
from armature.trace.slots import UNARY as UNARY_OPERATORS
from armature.trace.values.constant import ConstantValue
from armature.trace.values.floats import VaryingNumber, now
from armature.trace.values.sequence import ListValue
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.torch_abi.functions import Functions
    from armature.trace.base import Tracing

NUMBERS = (int, float, bool)
BITS = 62  # bits of an int that fits in a tensor
# Operators for which the operand types determine the result type.
BINARY = {
    **by_method("add", "sub", "mul", "truediv", "floordiv", "mod"),
    **{row.method: (row.function, False) for row in COMPARISONS.values()},
}
UNARY: dict[str, Callable[[Any], Any]] = {
    "__neg__": operator.neg, "__pos__": operator.pos, "__abs__": operator.abs, "__int__": int, "__float__": float,
}  # fmt: skip


@attrs.define(eq=False)
class PrecomputedValue(Value):
    """The result of a call before the graph, known only by type: a generator's state. example: its present value."""

    kind: type
    example: Any

    def python_type(self) -> type:
        return self.kind


@attrs.define(eq=False)
class PrecomputedNumber(VaryingNumber):
    """An int, float or bool, of which only the type is relied on."""

    slots = frozenset({"__bool__", *UNARY_OPERATORS, *BINARY})

    def describe(self) -> str:
        return f"a {type(self.number).__name__} that is not known while tracing"

    def as_constant(self) -> Any:
        raise NotConstant(self)

    def as_tensor(self) -> TensorValue:
        if type(self.number) is int and self.number.bit_length() > BITS:
            self.tracer.graph_break("integers-too-large", operation="a tensor")
        return super().as_tensor()

    def as_argument(self, tracer: Tracing) -> object:
        return self._item(tracer).as_argument(tracer)

    def as_fake(self, tracer: Tracing) -> object:
        return self._item(tracer).as_fake(tracer)

    def _item(self, tracer: Tracing) -> Value:
        """The number as a node of the graph, which is then not compiled further; only if the settings ask for it."""
        if type(self.number) is bool or not (tracer.request.fullgraph or tracer.config.capture_scalar_outputs):
            tracer.graph_break("random-number-as-argument", type=self.describe())
        if self.item is None:
            tracer.precalls.reads_numbers = True
            with tracer.fakes.symbols.taking_numbers():
                self.item = tracer.graph.call("item", (self.as_tensor(),), {})
        return self.item

    def truth(self, tracer: Tracing) -> bool:
        tracer.graph_break("branch-on-random-number", test=tracer.stack.expression())

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in UNARY or name in BINARY:
            return BoundMethod(self, name)
        raise NotConstant(self)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if kwargs:
            raise NotConstant(self)
        if name in UNARY and not args:
            found = compute(tracer, UNARY[name], (self,))
        else:
            found = self.binary(tracer, name, *args) if len(args) == 1 else None
        if found is None:
            raise NotConstant(self)
        return found

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if name not in BINARY:
            return None
        function, swapped = BINARY[name]
        return compute(tracer, function, (other, self) if swapped else (self, other))


FLOATS = (torch.float32, torch.float64)


def as_tensors(
    tracer: Tracing, functions: Functions, fn: Callable[..., Any] | str, args: Args
) -> tuple[Value, ...] | None:
    """The arguments of a call with a varying number replaced by a tensor, so that kernels can be built for it; None if
    the call is not such a one, or its result might differ."""
    positions = functions.tensor_positions(fn) if len(args) == 2 else ()
    if not positions:
        return None
    place = next((place for place, value in enumerate(args) if isinstance(value, VaryingNumber)), None)
    if place not in positions:
        return None
    number: Any = args[place]
    tensor = args[1 - place]
    if not isinstance(tensor, TensorValue) or not takes(tensor, number.python_type()):
        return None
    given = number.as_tensor()
    # between 0-d tensors, the dtypes must agree for the result's dtype to be right
    if tensor.fake.dim() == 0 and given.dtype != tensor.dtype:
        given = tracer.graph.call("to", (given, ConstantValue(tensor.dtype)), {})
    return (given, tensor) if place == 0 else (tensor, given)


def takes(tensor: TensorValue, kind: type) -> bool:
    """Whether a tensor computes the same with a number of a type as with a tensor of that number."""
    return kind is not bool and on_host(tensor.fake) and tensor.dtype in FLOATS


def known_before_graph(value: Value) -> bool:
    """Whether the generated code has the number before it calls the graph."""
    if isinstance(value, ConstantValue):
        return type(value.value) in NUMBERS
    if isinstance(value, SymbolicValue):
        return type(value.fake) is torch.SymInt and not is_unbacked(value.fake)
    return isinstance(value, VaryingNumber)


def compute(tracer: Tracing, function: Callable[..., Any], operands: Args) -> Value | None:
    """Apply a function to numbers before the graph; operand types determine the result's. None if impossible."""
    if not all(known_before_graph(value) for value in operands):
        return None
    try:
        example = function(*map(now, operands))
    except Exception:  # in another call there may be no error
        return None
    return call_before_graph(tracer, function, operands, example)


def call_before_graph(tracer: Tracing, function: Callable[..., Any], operands: Args, example: object) -> Value:
    """The value of a call made before the graph, which gave `example` this time."""
    return of_example(tracer, example, tracer.precalls.add(function, tuple(operands)))


def of_example(tracer: Tracing, example: object, source: Source) -> Value:
    """The value of a call's result, which has the structure of `example`."""
    if type(example) in NUMBERS:
        return PrecomputedNumber(example, tracer, source=source)
    if isinstance(example, list):
        return ListValue([of_example(tracer, item, ItemSource(source, place)) for place, item in enumerate(example)])
    return PrecomputedValue(type(example), example, source=source)
