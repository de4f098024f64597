"""Floats that vary from call to call: those of the program, and what it computes from them and from symbolic ints.

Python computes them before the graph (`FormulaSource`), where each is a 0-d tensor. The answer to a comparison is
guarded. Where the program needs the number itself (`as_constant`), it becomes a guarded constant.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import torch

from armature.frame.sources import CallSource, FormulaSource, Source
from armature.torch_abi import symbols
from armature.torch_abi.fake import tensor_of_number
from armature.torch_abi.symbols import hint
from armature.trace.base import Args, Kwargs, Value
from armature.trace.slots import OPERATORS, UNARY
from armature.trace.values.constant import ConstantValue
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.trace.base import Rebuilding, Tracing
    from armature.trace.slots import Comparison

SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**"}
LONGEST = 8000  # characters of a formula: one that uses its parts twice grows with each step


@attrs.define(eq=False)
class VaryingNumber(Value):
    """A number that is known before the graph. number: its current value."""

    number: Any
    tracer: Tracing
    source: Source = attrs.field(kw_only=True)
    tensor: TensorValue | None = None
    item: Value | None = None  # the node that computes it as a number

    is_symbolic: ClassVar[bool] = True

    def python_type(self) -> type:
        return type(self.number)

    def as_tensor(self) -> TensorValue:
        """The number as a graph input, a 0-d tensor that is made anew for each call."""
        if self.tensor is None:
            real = tensor_of_number(self.number)
            source = CallSource(self.source, tensor_of_number, "torch.as_tensor({})")
            self.tensor = TensorValue(self.tracer.fakes.of(real), None, real, source=source)
            self.tracer.objects.by_fake[id(self.tensor.fake)] = self.tensor
        return self.tensor


@attrs.define(eq=False)
class FloatValue(VaryingNumber):
    """A float that varies."""

    slots = frozenset({"__bool__", *UNARY})

    def as_constant(self) -> Any:
        self.tracer.guards.equal(self.source, self.number)
        return self.number

    def as_argument(self, tracer: Tracing) -> object:
        return self.as_graph_number(tracer).as_argument(tracer) if tracer.recorder.keeps_floats else self.as_constant()

    def as_fake(self, tracer: Tracing) -> object:
        return self.as_graph_number(tracer).as_fake(tracer) if tracer.recorder.keeps_floats else self.as_constant()

    def as_graph_number(self, tracer: Tracing) -> Value:
        """The number itself, as an argument of a graph call."""
        if self.item is None:
            with tracer.fakes.symbols.taking_numbers():
                self.item = tracer.graph.call("item", (self.as_tensor(),), {})
            tracer.fakes.symbols.note_number(self.as_tensor().fake, self.item.as_fake(tracer), self)
            tracer.fakes.symbols.answer = functools.partial(formula, tracer)
        return self.item

    def truth(self, tracer: Tracing) -> bool:
        answer = formula(tracer, "{0} != 0.0", bool, (self,))
        return bool((answer or self).as_constant())

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return ConstantValue(self.as_constant()).get_attribute(tracer, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        found = formula(tracer, "-{0}", UNARY[name], (self,)) if name == "__neg__" and not args else None
        return found or ConstantValue(self.as_constant()).call_method(tracer, name, args, kwargs)

    def rebuild(self, out: Rebuilding) -> None:
        out.load(self.as_tensor())
        out.method("item")
        out.call(0)


def float_of_program(tracer: Tracing, number: float, source: Source) -> Value:
    """The value of a float that is read at a source."""
    tracer.guards.type_is(source, float)
    known: Value = tracer.sizes.floats.setdefault(source, FloatValue(number, tracer, source=source))
    return known


def now(value: Value) -> Any:
    """The current number of a value."""
    if isinstance(value, SymbolicValue):
        return hint(value.fake)
    return value.number if isinstance(value, VaryingNumber) else value.as_constant()


def formula(tracer: Tracing, words: str, function: Callable[..., Any], operands: Args) -> Value | None:
    """A float or bool that Python computes before the graph from numbers, some of which vary. words: the function as an
    expression, with {0} for the first operand. None: not such numbers, or the function raises.

    A bool is guarded. A float varies if it depends on one that does, or had other values in earlier compilations.
    """
    given = [_part(tracer, value) for value in operands]
    if None in given:
        return None
    parts = tuple(part for part in given if not isinstance(part, str))
    texts = [part if isinstance(part, str) else f"{{{parts.index(part)}}}" for part in given]
    try:
        number = function(*map(now, operands))
    except Exception:  # the program's error
        return None
    source = FormulaSource(words.format(*texts), parts)
    if type(number) not in (float, bool) or not parts or len(source.expr) > LONGEST:
        return None
    varies = any(isinstance(value, FloatValue) for value in operands)
    if type(number) is float and (varies or tracer.sizes.changes(number, source)):
        return float_of_program(tracer, number, source)
    tracer.guards.equal(source, number)
    return ConstantValue(number)


def _part(tracer: Tracing, value: Value) -> Any:
    """A number in a formula: its text, or where it is read, as a size or int of the program is; None for others."""
    if isinstance(value, SymbolicValue) and type(number := value.fake) is torch.SymInt:
        found, sizes = symbols.symbols_of(number), tracer.sizes
        if not sizes.quantities.keys() - sizes.symbols.ragged >= set(found):
            return None
        parts = [sizes.quantities[symbol] for symbol in found]
        names = {symbol: parts[place].read(f"{{{place}}}") for place, symbol in enumerate(found)}
        return FormulaSource(symbols.words(symbols.expression(number), names), tuple(part.source for part in parts))
    known: Any = value.as_constant() if isinstance(value, ConstantValue) else None
    if type(known) in (int, float, bool):
        return f"({known})" if known < 0 else f"{known}"
    return value.source if isinstance(value, FloatValue) else None


def operate(tracer: Tracing, name: str, left: Value, right: Value) -> Value | None:
    """`left <op> right`, if its result is a float and an operand varies; otherwise None."""
    operands = (left, right)
    if name not in SYMBOLS or not (name == "truediv" or any(value.python_type() is float for value in operands)):
        return None
    return formula(tracer, f"{{0}} {SYMBOLS[name]} {{1}}", OPERATORS[name].function, operands)


def compare(tracer: Tracing, row: Comparison, left: Value, right: Value) -> Value | None:
    """A comparison with a float that varies; otherwise None."""
    if not isinstance(left, FloatValue) and not isinstance(right, FloatValue):
        return None
    return formula(tracer, f"{{0}} {row.symbol} {{1}}", row.function, (left, right))
