"""Floats that the graph computes: results of `.item()`, and Python's arithmetic on them.

The graph has the arithmetic as the program does it, on Python floats and in the program's order, because sums and
products of floats depend on the order and torch's symbolic expressions do not preserve it. So each result is a symbol
of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from armature.torch_abi.symbols import is_unbacked
from armature.trace.base import Args, Value
from armature.trace.values.constant import ConstantValue
from armature.trace.values.floats import FloatValue
from armature.trace.values.precomputed import PrecomputedNumber
from armature.trace.values.symbolic import SymbolicValue

if TYPE_CHECKING:
    from armature.trace.base import Tracing


def real_power(base: float, exponent: float) -> float:
    """`base ** exponent`; an error if the result is complex, because tracing assumed a float."""
    found: float = base**exponent
    if type(found) is complex:
        raise ValueError(f"{base} ** {exponent} is complex, and the compiled code has a float in its place")
    return found


# Operators on a float and a number whose result is a float.
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": real_power,
}  # fmt: skip


def is_computed(value: Value) -> bool:
    """Whether it is a float that is only known at run time."""
    return isinstance(value, SymbolicValue) and type(value.fake) is torch.SymFloat


def is_runtime_number(value: Value) -> bool:
    """Whether it is a number that is only known at run time."""
    return isinstance(value, SymbolicValue) and is_unbacked(value.fake)


def kind_of_number(value: Value) -> type | None:
    """The type of a number; None for other values, and for numbers that a graph can't represent."""
    if isinstance(value, (SymbolicValue, FloatValue, PrecomputedNumber)):
        kind = value.python_type()
        return None if kind is bool else kind
    known = value.value if isinstance(value, ConstantValue) else None
    return type(known) if type(known) in (int, float, bool) else None


def as_graph_number(tracer: Tracing, value: Value) -> Value:
    """The number as an argument of a graph call."""
    return value.as_graph_number(tracer) if isinstance(value, FloatValue) else value


def computed_float(tracer: Tracing, function: Callable[..., Any], operands: Args) -> Value:
    """The float that the graph computes by applying a function to numbers."""
    given = [as_graph_number(tracer, value) for value in operands]
    return tracer.graph.call(function, given, {}, lambda *fakes: tracer.fakes.symbols.unknown_float())


def operate(tracer: Tracing, name: str, left: Value, right: Value) -> Value | None:
    """`left <op> right`, if it is a float with an operand that is only known at run time; otherwise None."""
    operands = (left, right)
    kinds = [kind_of_number(value) for value in operands]
    if name not in ARITHMETIC or None in kinds or not (float in kinds or name == "truediv"):
        return None
    return computed_float(tracer, ARITHMETIC[name], operands) if any(map(is_runtime_number, operands)) else None
