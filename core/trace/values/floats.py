"""Floats of the program that vary from call to call: each is a graph input, a 0-d tensor.

Sums and products are computed in the graph, in double precision as Python does. A comparison with a known number is
guarded by its answer. Where the program needs the number itself (`as_constant`), it becomes a guarded constant.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

import attrs

from armature.frame.sources import CallSource, Source
from armature.torch_abi.fake import tensor_of_number
from armature.trace.base import Args, Kwargs, Value
from armature.trace.slots import COMPARED_BY, UNARY, by_method
from armature.trace.values.constant import ConstantValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.trace.base import Rebuilding, Tracing

ARITHMETIC = by_method("add", "sub", "mul", "truediv")
# Calls whose result has the same dtype and sizes whatever the number is.
KEEPS = frozenset({
    "add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "truediv", "iadd", "isub", "imul", "itruediv",
    "addcmul", "addcmul_", "addcdiv", "addcdiv_", "clamp", "clamp_", "clamp_max", "clamp_min", "clip", "leaky_relu",
    "lerp", "full", "linspace",
})  # fmt: skip


@attrs.define(eq=False)
class FloatValue(Value):
    """A float. tensor: computes it; number: its current value; leaves: the program's floats it depends on."""

    tensor: TensorValue
    number: float
    leaves: tuple[tuple[Source, float], ...]
    tracer: Tracing
    item: Value | None = None  # the node that computes it as a number

    is_symbolic: ClassVar[bool] = True
    slots = frozenset({"__bool__", *UNARY, *ARITHMETIC, *COMPARED_BY})

    def python_type(self) -> type:
        return float

    def as_constant(self) -> Any:
        for source, number in self.leaves:
            self.tracer.guards.equal(source, number)
        return self.number

    def as_argument(self, tracer: Tracing) -> object:
        return self.as_graph_number(tracer).as_argument(tracer) if tracer.recorder.keeps_floats else self.as_constant()

    def as_fake(self, tracer: Tracing) -> object:
        return self.as_graph_number(tracer).as_fake(tracer) if tracer.recorder.keeps_floats else self.as_constant()

    def as_graph_number(self, tracer: Tracing) -> Value:
        """The number itself, as an argument of a graph call."""
        if self.item is None:
            with tracer.fakes.symbols.taking_numbers():
                self.item = tracer.graph.call("item", (self.tensor,), {})
        return self.item

    def truth(self, tracer: Tracing) -> bool:
        answer = self._compared(tracer, operator.ne, 0.0)
        return bool(self.as_constant()) if answer is None else answer

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return ConstantValue(self.as_constant()).get_attribute(tracer, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        found = self._computed(tracer, operator.neg, (self,)) if name == "__neg__" and not args else None
        if found is not None:
            return found
        return ConstantValue(self.as_constant()).call_method(tracer, name, args, kwargs)

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        known = isinstance(other, ConstantValue) and type(other.value) in (int, float)
        if known and name in COMPARED_BY:
            answer = self._compared(tracer, COMPARED_BY[name].function, other.as_constant())
            return None if answer is None else tracer.constant(answer)
        if name in COMPARED_BY or not (known or isinstance(other, FloatValue)):
            return None
        function, swapped = ARITHMETIC[name]
        if known and not -(2**53) <= other.as_constant() <= 2**53:
            return None
        return self._computed(tracer, function, (other, self) if swapped else (self, other))

    def _compared(self, tracer: Tracing, compare: Callable[[float, float], bool], number: float) -> bool | None:
        """The guarded answer to a comparison of a float input; None for a computed float."""
        if self.source is None:
            return None
        answer = compare(self.number, number)
        tracer.guards.compared(self.source, compare, number, answer)
        return answer

    def _computed(self, tracer: Tracing, function: Callable[..., Any], operands: tuple[Value, ...]) -> Value | None:
        if tracer.overrides.has_modes:
            return None  # modes would see tensor operations that the program does not make
        floats = [value for value in operands if isinstance(value, FloatValue)]
        try:
            number = function(*(v.number if isinstance(v, FloatValue) else v.as_constant() for v in operands))
        except ArithmeticError:  # by zero: the program's error
            return None
        if function is operator.truediv and isinstance(operands[1], FloatValue):
            return None  # in another call the divisor may be zero
        given = [v.tensor if isinstance(v, FloatValue) else ConstantValue(float(v.as_constant())) for v in operands]
        made: Any = tracer.graph.call(function, given, {})
        leaves = dict(leaf for value in floats for leaf in value.leaves)
        return FloatValue(made, number, tuple(leaves.items()), tracer)

    def rebuild(self, out: Rebuilding) -> None:
        out.load(self.tensor)
        out.method("item")
        out.call(0)


def float_of_program(tracer: Tracing, number: float, source: Source) -> Value:
    """The value of a float of the program."""
    tracer.guards.type_is(source, float)
    known = tracer.sizes.floats.get(source)
    if known is None:
        where = CallSource(source, tensor_of_number, "torch.as_tensor({})")
        given = cast("TensorValue", tracer.objects.wrap(tensor_of_number(number), where))
        known = tracer.sizes.floats[source] = FloatValue(given, number, ((source, number),), tracer, source=source)
    return known
