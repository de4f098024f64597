"""Functions of numbers unknown to tracing: sizes, ints that vary from call to call, floats that the graph computes.

A function returns None for other numbers, with which Python itself computes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import BuiltinFunctionType

import torch

from armature.plugin_api import (
    MATH_FUNCTIONS,
    Args,
    CallSource,
    ConstantValue,
    PrecomputedNumber,
    SymbolicNumber,
    Tracing,
    TupleValue,
    Value,
    as_graph_number,
    compute_before_graph,
    computed_float,
    float_before_graph,
    is_computed,
    is_runtime_number,
    kind_of_number,
    known_before_graph,
    number_now,
    number_of,
    symbolic_number,
)

OF_NUMBERS = frozenset(fn for fn in vars(math).values() if isinstance(fn, BuiltinFunctionType))
FUNCTIONS = {**MATH_FUNCTIONS, float: torch.sym_float}
COMPENSATES = sum([0.1] * 10) == 1.0  # whether `sum` of floats compensates rounding errors, as in later Python versions


def is_number(value: Value) -> bool:
    """Whether it is an int, float or bool that a graph can represent."""
    return kind_of_number(value) is not None


def absolute(tracer: Tracing, value: Value) -> Value | None:
    """`abs(value)` of a symbolic int, or of a float that varies or is only known at run time; otherwise None."""
    if (found := of_varying_float(tracer, abs, "abs({})", value)) is not None:
        return found
    if is_computed(value):
        return computed_float(tracer, abs, (value,))
    if not isinstance(value, SymbolicNumber) or type(value.fake) is not torch.SymInt:
        return None
    return value if tracer.sizes.decide(value.fake >= 0) else symbolic_number(tracer, -value.fake)


def extreme(tracer: Tracing, op: str, items: list[Value]) -> Value | None:
    """The smallest ("<") or largest of numbers of one type, some of them unknown; None: choose by comparing."""
    if not any(is_computed(item) for item in items) or any(kind_of_number(item) is not float for item in items):
        return _extreme_of_ints(tracer, op, items)
    found = items[0]
    for item in items[1:]:
        found = computed_float(tracer, torch.sym_min if op == "<" else torch.sym_max, (found, item))
    return found


def _extreme_of_ints(tracer: Tracing, op: str, items: list[Value]) -> Value | None:
    """The smallest ("<") or largest of ints, some of them symbolic; None: choose by comparing."""
    if not any(isinstance(item, SymbolicNumber) for item in items):
        return None
    if any(item.python_type() is bool for item in items):  # the chosen one stays a bool
        return None
    numbers = [number_of(item) for item in items]
    if any(type(number) not in (int, torch.SymInt) for number in numbers):
        return None
    choose: Callable[[object, object], object] = torch.sym_min if op == "<" else torch.sym_max
    found = numbers[0]
    for number in numbers[1:]:
        found = choose(found, number)
    return symbolic_number(tracer, found)


def total(tracer: Tracing, numbers: list[Value]) -> Value:
    """`sum(numbers[1:], numbers[0])`."""
    if not COMPENSATES or float not in map(kind_of_number, numbers):
        return functools.reduce(functools.partial(tracer.python.operate, "add"), numbers)
    # Later Python versions compensate rounding errors of floats.
    if all(isinstance(number, ConstantValue) for number in numbers):
        return ConstantValue(sum_of(*(number.as_constant() for number in numbers)))
    found = None if any(map(is_runtime_number, numbers)) else compute_before_graph(tracer, sum_of, tuple(numbers))
    if found is None:
        terms = TupleValue([as_graph_number(tracer, number) for number in numbers[1:]])
        found = computed_float(tracer, sum, (terms, numbers[0]))
    return found


def sum_of(first: float, *others: float) -> float:
    """`sum(others, first)`."""
    return sum(others, first)


def of_varying_float(tracer: Tracing, function: Callable[[float], object], words: str, value: Value) -> Value | None:
    """A function written in C of a float of the program that varies from call to call; None for other values, and where
    the function raises. The result is read and guarded like a number of the program; if it is a float, it varies
    too."""
    if value.is_constant or isinstance(value, PrecomputedNumber) or not known_before_graph(value):
        return None
    if value.python_type() is not float or value.source is None:
        return None
    try:
        made = function(number_now(value))
    except Exception:  # the program's error
        return None
    source = CallSource(value.source, function, words)
    return tracer.sizes.of_program(tracer, made, source) if type(made) is float else tracer.objects.wrap(made, source)


def of_function(tracer: Tracing, function: Callable[..., object], operands: Args) -> Value | None:
    """The result of `int`, `float` or a function of `math` for numbers that vary, or one known at run time only; None
    for other functions or arguments."""
    if len(operands) != 1:
        places = ", ".join(f"{{{place}}}" for place in range(len(operands)))
        words = f"math.{function.__name__}({places})"
        return float_before_graph(tracer, words, function, operands) if function in OF_NUMBERS else None
    if function is float and operands[0].is_symbolic and operands[0].python_type() is float:
        return operands[0]
    if isinstance(operands[0], SymbolicNumber) and (function is float or function in OF_NUMBERS):
        words = "float({0})" if function is float else f"math.{function.__name__}({{0}})"
        if (found := float_before_graph(tracer, words, function, operands)) is not None:
            return found
    if (found := of_varying_float(tracer, function, f"{function.__name__}({{}})", operands[0])) is not None:
        return found
    if not is_runtime_number(operands[0]) or kind_of_number(operands[0]) is None:
        return None
    if function is math.fabs:
        number = of_function(tracer, float, operands)
        return None if number is None else absolute(tracer, number)
    known = FUNCTIONS.get(function)
    return None if known is None else computed_float(tracer, known, operands)
