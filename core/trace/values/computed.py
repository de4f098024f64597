"""Floats that the graph computes: what `.item()` takes out of a tensor, and Python's arithmetic on it.

The graph has the arithmetic as the program does it, on Python's floats and in its order: sums and products of floats
depend on the order, which torch's symbolic expressions do not keep. So each result is a symbol of its own.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from armature.torch_abi.symbols import MATH_FUNCTIONS, is_unbacked
from armature.trace.values.base import Args, Value
from armature.trace.values.constant import ConstantValue
from armature.trace.values.floats import FloatValue
from armature.trace.values.precomputed import EarlyNumber, compute
from armature.trace.values.sequence import TupleValue
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.versions import SUM_KEEPS_WHAT_IS_LOST

if TYPE_CHECKING:
    from armature.trace.values.base import Tracing


def real_power(base: float, exponent: float) -> float:
    """`base ** exponent`, which must not be complex: tracing took it for a float."""
    found: float = base**exponent
    if type(found) is complex:
        raise ValueError(f"{base} ** {exponent} is complex, and the compiled code has a float in its place")
    return found


# Of a float and a number, each gives a float.
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": real_power,
}  # fmt: skip
FUNCTIONS = {**MATH_FUNCTIONS, float: torch.sym_float}
UNARY: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "pos": operator.pos}


def is_computed(value: Value) -> bool:
    """Whether it is a float that only a run will tell."""
    return isinstance(value, SymbolicValue) and type(value.fake) is torch.SymFloat


def is_taken(value: Value) -> bool:
    """Whether it is a number that only a run will tell."""
    return isinstance(value, SymbolicValue) and is_unbacked(value.fake)


def _kind(value: Value) -> type | None:
    """The type of a number; None where it is none, or is not one that a graph can take."""
    if isinstance(value, (SymbolicValue, FloatValue, EarlyNumber)):
        kind = value.python_type()
        return None if kind is bool else kind
    known = value.value if isinstance(value, ConstantValue) else None
    return type(known) if type(known) in (int, float, bool) else None


def is_number(value: Value) -> bool:
    """Whether it is an int, float or truth value that a graph can take."""
    return _kind(value) is not None


def _taken(tracer: Tracing, value: Value) -> Value:
    return value.taken(tracer) if isinstance(value, FloatValue) else value


def _float(tracer: Tracing, function: Callable[..., Any], operands: Args) -> Value:
    """The float that a function of numbers gives when the graph runs."""
    given = [_taken(tracer, value) for value in operands]
    return tracer.graph_call(function, given, {}, lambda *fakes: tracer.fakes.symbols.unknown_float())


def operate(tracer: Tracing, name: str, left: Value, right: Value) -> Value | None:
    """`left <op> right`, if it is a float and only a run will tell one of them; None: it is something else."""
    operands = (left, right)
    kinds = [_kind(value) for value in operands]
    if name not in ARITHMETIC or None in kinds or not (float in kinds or name == "truediv"):
        return None
    return _float(tracer, ARITHMETIC[name], operands) if any(is_taken(value) for value in operands) else None


def unary(tracer: Tracing, name: str, value: Value) -> Value | None:
    """`-value` or `+value`; None: it is no such float."""
    return _float(tracer, UNARY[name], (value,)) if name in UNARY and is_computed(value) else None


def absolute(tracer: Tracing, value: Value) -> Value | None:
    """`abs(value)`; None: it is no such float."""
    return _float(tracer, abs, (value,)) if is_computed(value) else None


def extreme(tracer: Tracing, op: str, items: list[Value]) -> Value | None:
    """The smallest ("<") or largest of floats; None: there are others, or all are known."""
    if not any(is_computed(item) for item in items) or any(_kind(item) is not float for item in items):
        return None
    found = items[0]
    for item in items[1:]:
        found = _float(tracer, torch.sym_min if op == "<" else torch.sym_max, (found, item))
    return found


def total(tracer: Tracing, numbers: list[Value]) -> Value:
    """`sum(numbers[1:], numbers[0])`."""
    if not SUM_KEEPS_WHAT_IS_LOST or float not in map(_kind, numbers):
        return functools.reduce(functools.partial(tracer.python.operate, "add"), numbers)
    # Of floats, later Pythons keep what the additions lose.
    if all(isinstance(number, ConstantValue) for number in numbers):
        return ConstantValue(sum_of(*(number.as_constant() for number in numbers)))
    found = None if any(map(is_taken, numbers)) else compute(tracer, sum_of, tuple(numbers))
    if found is None:
        terms = TupleValue([_taken(tracer, number) for number in numbers[1:]])
        found = _float(tracer, sum, (terms, numbers[0]))
    return found


def sum_of(first: Any, *others: Any) -> Any:
    """`sum(others, first)`."""
    return sum(others, first)


def call(tracer: Tracing, function: Callable[..., Any], operands: Args) -> Value | None:
    """What `float` or a function of `math` gives for a number that only a run will tell; None: it is another function,
    or another argument."""
    if len(operands) != 1 or not is_taken(operands[0]) or _kind(operands[0]) is None:
        return None
    if function is math.fabs:
        number = call(tracer, float, operands)
        return None if number is None else absolute(tracer, number)
    if function is float and is_computed(operands[0]):
        return operands[0]
    known = FUNCTIONS.get(function)
    return None if known is None else _float(tracer, known, operands)
