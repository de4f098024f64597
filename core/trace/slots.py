"""CPython's protocols in one table: the methods that an operation calls, on which operand, and in which order.

Section numbers refer to the language reference, chapter 3 "Data model", unless another chapter is named. Special
methods are looked up in the class of an object, never in the object itself (3.3.12). This module has names and orders
only; `operators.py`, `iteration.py` and the value classes implement them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from armature.introspection import MISSING, class_member


@attrs.frozen
class Operator:
    """A binary operator (3.3.8). name: as in the module `operator`; in_place: the form for `left <op>= right`."""

    name: str
    function: Callable[[Any, Any], Any]
    in_place: Callable[[Any, Any], Any]
    method: str
    reflected: str
    in_place_method: str


def _operator(name: str) -> Operator:
    plain = name.removesuffix("_")
    names = (f"__{plain}__", f"__r{plain}__", f"__i{plain}__")
    return Operator(name, getattr(operator, name), getattr(operator, f"i{plain}"), *names)


# In the order of the argument of BINARY_OP, whose in-place forms follow in the same order.
OPERATORS: Mapping[str, Operator] = {
    name: _operator(name)
    for name in (
        "add", "and_", "floordiv", "lshift", "matmul", "mul", "mod", "or_", "pow", "rshift", "sub", "truediv", "xor",
    )
}  # fmt: skip


def by_method(*names: str) -> dict[str, tuple[Callable[[Any, Any], Any], bool]]:
    """Maps an operator's method to its function, and to whether the object is the right operand."""
    rows = [OPERATORS[name] for name in names]
    return {row.method: (row.function, False) for row in rows} | {row.reflected: (row.function, True) for row in rows}


@attrs.frozen
class Comparison:
    """A rich comparison (3.3.1). reflected: the method that is called on the other operand, with operands swapped."""

    symbol: str
    function: Callable[[Any, Any], Any]
    method: str
    reflected: str


COMPARISONS: Mapping[str, Comparison] = {
    row.symbol: row
    for row in (
        Comparison("==", operator.eq, "__eq__", "__eq__"),
        Comparison("!=", operator.ne, "__ne__", "__ne__"),
        Comparison("<", operator.lt, "__lt__", "__gt__"),
        Comparison("<=", operator.le, "__le__", "__ge__"),
        Comparison(">", operator.gt, "__gt__", "__lt__"),
        Comparison(">=", operator.ge, "__ge__", "__le__"),
    )
}
COMPARED_BY: Mapping[str, Comparison] = {row.method: row for row in COMPARISONS.values()}
UNARY: Mapping[str, Callable[[Any], Any]] = {
    "__neg__": operator.neg, "__pos__": operator.pos, "__invert__": operator.invert,
}  # fmt: skip

# Each slot with the verb of `Value` that implements it. `Value.slots` lists those that the objects of a class support.
VERBS: Mapping[str, str] = {
    "__bool__": "truth", "__hash__": "key", "__call__": "call",
    "__len__": "length", "__iter__": "stream", "__next__": "advance", "__reversed__": "backwards",
    "__contains__": "contains", "__getitem__": "get_item", "__setitem__": "set_item", "__delitem__": "delete_item",
    **dict.fromkeys(UNARY, "unary"),
    **dict.fromkeys((*COMPARED_BY, "__divmod__", "__rdivmod__"), "binary"),
    **{name: "binary" for row in OPERATORS.values() for name in (row.method, row.reflected, row.in_place_method)},
}  # fmt: skip
ALL_SLOTS = frozenset(VERBS)
EQUALITY_SLOTS = frozenset({"__eq__", "__ne__"})
COLLECTION_SLOTS = frozenset({"__len__", "__iter__", "__contains__"})
NUMBER_SLOTS = frozenset({"__bool__", *(name for name, verb in VERBS.items() if verb in ("unary", "binary"))})


def right_goes_first(left: type, right: type, reflected: str) -> bool:
    """Whether the right operand of a binary operator comes before the left one (3.3.8): its class derives from the
    left one's, and overrides the reflected method."""
    return left is not right and issubclass(right, left) and differs(left, right, reflected)


def right_compares_first(left: type, right: type) -> bool:
    """Whether the right operand of a comparison comes first: its class derives from the left one's (3.3.1)."""
    return left is not right and issubclass(right, left)


def differs(left: type, right: type, name: str) -> bool:
    """Whether two classes have different methods of this name."""
    return class_member(left, name) is not class_member(right, name)


# The TypeError for an operation whose special method an object's class lacks; {0}: the class.
LACKING: Mapping[str, str] = {
    "__len__": "object of type '{0}' has no len()",
    "__getitem__": "'{0}' object is not subscriptable",
    "__setitem__": "'{0}' object does not support item assignment",
    "__delitem__": "'{0}' object doesn't support item deletion",
    "__next__": "'{0}' object is not an iterator",
    "__iter__": "'{0}' object is not iterable",
    "__reversed__": "'{0}' object is not reversible",
    "__contains__": "argument of type '{0}' is not iterable",
    "__call__": "'{0}' object is not callable",
    "__hash__": "unhashable type: '{0}'",
    "__neg__": "bad operand type for unary -: '{0}'",
    "__pos__": "bad operand type for unary +: '{0}'",
    "__invert__": "bad operand type for unary ~: '{0}'",
    "__abs__": "bad operand type for abs(): '{0}'",
    "__round__": "type {0} doesn't define __round__ method",
    "__index__": "'{0}' object cannot be interpreted as an integer",
}

# The methods that C functions may call on an object whose class derives from a builtin type, by kind of function.
AS_SEQUENCE = ("__iter__", "__len__", "__getitem__")
AS_NUMBER = ("__index__", "__int__", "__float__", "__complex__", "__bool__")
AS_KEY = (*COMPARED_BY, "__hash__")
AS_TEXT = ("__str__", "__repr__", "__format__")
LOOKUPS = ("__getattribute__", "__getattr__")
AS_OPERAND = (*AS_SEQUENCE, *AS_NUMBER, *LOOKUPS)
AS_ARGUMENT = (*AS_SEQUENCE, *AS_NUMBER, *AS_KEY)


def is_iterable(kind: type) -> bool:
    """Whether `iter()` accepts objects of a class (3.3.7): by `__iter__`, unless it is None, or by `__getitem__`."""
    own = class_member(kind, "__iter__")
    return own is not None and (own is not MISSING or class_member(kind, "__getitem__") is not MISSING)
