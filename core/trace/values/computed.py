"""Floats that the graph computes: what `.item()` takes out of a tensor, and Python's arithmetic on it.

The graph has the arithmetic as the program does it, on Python's floats and in its order: sums and products of floats
depend on the order, which torch's symbolic expressions do not keep. So each result is a symbol of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from armature.torch_abi.symbols import is_unbacked
from armature.trace.values.base import Args, Value
from armature.trace.values.constant import ConstantValue
from armature.trace.values.floats import FloatValue
from armature.trace.values.precomputed import PrecomputedNumber
from armature.trace.values.symbolic import SymbolicValue

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
UNARY: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "pos": operator.pos}


def is_computed(value: Value) -> bool:
    """Whether it is a float that only a run will tell."""
    return isinstance(value, SymbolicValue) and type(value.fake) is torch.SymFloat


def is_taken(value: Value) -> bool:
    """Whether it is a number that only a run will tell."""
    return isinstance(value, SymbolicValue) and is_unbacked(value.fake)


def kind_of_number(value: Value) -> type | None:
    """The type of a number; None where it is none, or is not one that a graph can take."""
    if isinstance(value, (SymbolicValue, FloatValue, PrecomputedNumber)):
        kind = value.python_type()
        return None if kind is bool else kind
    known = value.value if isinstance(value, ConstantValue) else None
    return type(known) if type(known) in (int, float, bool) else None


def taken(tracer: Tracing, value: Value) -> Value:
    """The number as the graph takes it."""
    return value.taken(tracer) if isinstance(value, FloatValue) else value


def computed_float(tracer: Tracing, function: Callable[..., Any], operands: Args) -> Value:
    """The float that a function of numbers gives when the graph runs."""
    given = [taken(tracer, value) for value in operands]
    return tracer.graph_call(function, given, {}, lambda *fakes: tracer.fakes.symbols.unknown_float())


def operate(tracer: Tracing, name: str, left: Value, right: Value) -> Value | None:
    """`left <op> right`, if it is a float and only a run will tell one of them; None: it is something else."""
    operands = (left, right)
    kinds = [kind_of_number(value) for value in operands]
    if name not in ARITHMETIC or None in kinds or not (float in kinds or name == "truediv"):
        return None
    return computed_float(tracer, ARITHMETIC[name], operands) if any(is_taken(value) for value in operands) else None


def unary(tracer: Tracing, name: str, value: Value) -> Value | None:
    """`-value` or `+value`; None: it is no such float."""
    return computed_float(tracer, UNARY[name], (value,)) if name in UNARY and is_computed(value) else None
