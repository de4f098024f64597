"""When a value is the same constant again: stricter than `==`."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from armature.torch_abi.numpy import SCALARS

SINGLETONS = frozenset({bool, torch.dtype, torch.layout, torch.memory_format, type(Ellipsis), type(NotImplemented)})
BY_EQUALITY = frozenset({int, str, bytes, torch.device, torch.Size})


def is_by_identity(value: object) -> bool:
    """Whether equal values of this type are one object."""
    return type(value) in SINGLETONS or isinstance(value, (type, enum.Enum, FunctionType, BuiltinFunctionType))


def is_by_equality(value: object) -> bool:
    """Whether type and `==` tell values apart: true of numbers other than zeros and NaN, which `==` mixes up."""
    if type(value) is float:
        return value != 0.0 and not math.isnan(value)
    return type(value) in BY_EQUALITY


def same(a: object, b: object) -> bool:
    """Same type and value; NaN is NaN, 0.0 is not -0.0, and True is not 1, at any depth of builtin containers."""
    if type(a) is not type(b):
        return False
    test = _BY_TYPE.get(type(a))
    return bool(a == b) if test is None else test(a, b)


def _same_float(a: float, b: float) -> bool:
    if a != a:
        return b != b
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)


def _same_complex(a: complex, b: complex) -> bool:
    return _same_float(a.real, b.real) and _same_float(a.imag, b.imag)


def _same_number(a: Any, b: Any) -> bool:
    return same(a.item(), b.item())


def _same_sequence(a: list[object], b: list[object]) -> bool:
    return len(a) == len(b) and all(map(same, a, b))


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
    **dict.fromkeys(SCALARS, _same_number),
}
