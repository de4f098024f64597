"""Decides whether two values are the same constant, stricter than `==`, or of the same types."""

from __future__ import annotations

import enum
import math
import numbers
import operator
from collections.abc import Callable, Collection, Hashable, Iterable
from itertools import islice
from types import BuiltinFunctionType, FunctionType
from typing import Any, cast

import torch

SINGLETONS = frozenset({bool, torch.dtype, torch.layout, torch.memory_format, type(Ellipsis), type(NotImplemented)})
CONTAINERS = (tuple, list, set, frozenset, dict)
DEPTH, WIDTH = 4, 32  # how deep, and for how many items, the types in containers are compared
BY_EQUALITY = frozenset({int, str, bytes, torch.device, torch.Size})


def is_by_identity(value: object) -> bool:
    """Whether equal values of this type are always the same object."""
    return type(value) in SINGLETONS or issubclass(type(value), (type, enum.Enum, FunctionType, BuiltinFunctionType))


def is_by_equality(value: object) -> bool:
    """Whether type and `==` distinguish values; not true of zeros and NaN."""
    if type(value) is float:
        return value != 0.0 and not math.isnan(value)
    return type(value) in BY_EQUALITY


def same(a: object, b: object) -> bool:
    """Same type and value; NaN is NaN, 0.0 is not -0.0, and True is not 1, at any depth of builtin containers."""
    if type(a) is not type(b):
        return False
    test = _BY_TYPE.get(type(a))
    if test is None:
        test = _same_number if _has_number(type(a)) else operator.eq
    return bool(test(a, b))


def _same_float(a: float, b: float) -> bool:
    if a != a:
        return b != b
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)


def _same_complex(a: complex, b: complex) -> bool:
    return _same_float(a.real, b.real) and _same_float(a.imag, b.imag)


def _has_number(kind: type) -> bool:
    """Whether objects of a type are numbers of a fixed dtype, as numpy's scalars are, with `item` for Python's own."""
    return issubclass(kind, numbers.Number) and hasattr(kind, "item")


def _same_number(a: Any, b: Any) -> bool:
    mine, theirs = a.item(), b.item()
    return bool(a == b) if type(mine) is type(a) else same(mine, theirs)  # Python has no number for a long double


def _same_sequence(a: list[object], b: list[object]) -> bool:
    return len(a) == len(b) and all(map(same, a, b))


def same_members(a: Collection[object], b: Collection[object]) -> bool:
    """Whether two sets have the same members; objects of the program must be identical, not just equal."""
    mine, theirs = _member_keys(a), _member_keys(b)
    return len(mine) == len(theirs) and set(mine) == set(theirs)


def _member_keys(held: Collection[object]) -> list[Hashable]:
    """Iterate by the builtin type's method, even if a derived class overrides it."""
    iterate: Any = set.__iter__ if issubclass(type(held), set) else frozenset.__iter__
    return [*map(_identity_key, iterate(held))]


def _identity_key(member: Any) -> Hashable:
    """Equal keys for the same constant or object; a NaN is compared by identity."""
    kind = type(member)
    make_key = repr if _has_number(kind) else _IDENTITY_KEYS.get(kind)
    return (kind, id(member) if make_key is None or (make_key is repr and member != member) else make_key(member))


_IDENTITY_KEYS: dict[type, Callable[[Any], Hashable]] = {
    **dict.fromkeys(BY_EQUALITY, lambda member: member),
    float: repr,
    complex: repr,
    tuple: lambda member: tuple(map(_identity_key, member)),
    frozenset: lambda member: frozenset(_member_keys(member)),
}


class _Filler:
    """A set member whose hash puts it into a given slot of the set's hash table, if the slot is free."""

    def __init__(self, slot: int) -> None:
        self.slot = slot

    def __hash__(self) -> int:
        return self.slot


_FILLERS = tuple(map(_Filler, range(8)))  # one for each slot of the smallest hash table


def layout(held: Collection[object]) -> tuple[tuple[int, ...], ...]:
    """A fingerprint of a set's hash table. The order of a copy depends on it as well as on the set's own order, because
    Python copies the smallest tables slot by slot unless a member was removed. For a copy of the set, and for one with
    a further member (-1) added at each slot, the fingerprint lists the members' positions."""
    if len(held) >= 5:
        return ()
    places = {member: place for place, member in enumerate(held)}
    copies = [set(held), *(set(held) | {filler} for filler in _FILLERS)]
    return tuple(tuple(places.get(member, -1) for member in copy) for copy in copies)


def has_layout(expected: tuple[tuple[int, ...], ...], held: Collection[object]) -> bool:
    """Whether a set's hash table has the expected layout."""
    return layout(held) == expected


def _same_dict(a: dict[object, object], b: dict[object, object]) -> bool:
    return _same_sequence(list(a), list(b)) and all(same(value, b[key]) for key, value in a.items())


def _same_slice(a: slice, b: slice) -> bool:
    return same((a.start, a.stop, a.step), (b.start, b.stop, b.step))


_BY_TYPE: dict[type, Callable[..., bool]] = {
    float: _same_float,
    complex: _same_complex,
    list: _same_sequence,
    tuple: _same_sequence,
    dict: _same_dict,
    slice: _same_slice,
    **dict.fromkeys((set, frozenset), same_members),
}


class Form:
    """A test whether a value has the recorded type and, for a container, contents of the recorded types."""

    def __init__(self, value: object) -> None:
        self.form = _form(value)

    def __call__(self, value: object) -> bool:
        return _form(value) == self.form


def _form(value: object, depth: int = 0) -> object:
    kind = type(value)
    if depth == DEPTH or not issubclass(kind, CONTAINERS):
        return kind
    items = (
        dict.values(cast("dict[object, object]", value)) if issubclass(kind, dict) else cast("Iterable[object]", value)
    )
    return kind, frozenset(_form(item, depth + 1) for item in islice(items, WIDTH))
