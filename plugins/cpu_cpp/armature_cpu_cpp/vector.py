"""C++ types and literals for dtypes, and the number of lanes of a kernel."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import torch

from armature.backend_api import rounded
from armature.plugin_api import invariant

CPP_TYPES: Mapping[torch.dtype, str] = MappingProxyType(
    {
        torch.float32: "float", torch.float64: "double", torch.bfloat16: "bf16", torch.float16: "f16",
        torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8",
        torch.bool: "bool", torch.float8_e4m3fn: "u8", torch.float8_e5m2: "u8",  # only moved: their bits
    }
)  # fmt: skip
HALVES = frozenset((torch.bfloat16, torch.float16))


def cpp_type(dtype: torch.dtype) -> str:
    """The type of one element."""
    return CPP_TYPES[dtype]


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The type in which values of the dtype are computed and accumulated."""
    return torch.float32 if dtype in HALVES else dtype


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A constant of the exact type, because vectors don't convert implicitly."""
    if dtype == torch.bool:
        return "true" if value else "false"
    if dtype in HALVES:
        form, shift = ("<e", 0) if dtype == torch.float16 else ("<f", 16)  # bfloat16: the upper half of a float32
        bits = int.from_bytes(struct.pack(form, rounded(value, dtype)), "little") >> shift
        return f"{cpp_type(dtype)}{{{bits:#06x}}}"
    if dtype in (torch.float32, torch.float64):
        return _float_literal(float(value), dtype)
    whole = int(value)
    if dtype == torch.int64:
        return f"i64({whole})" if whole > -(2**63) else "i64(-9223372036854775807 - 1)"
    if dtype == torch.int32:
        return f"i32({whole})" if whole > -(2**31) else "i32(-2147483647 - 1)"
    invariant(dtype in CPP_TYPES, "a literal of a dtype without C++ type", dtype=dtype)
    return f"{cpp_type(dtype)}({whole})"


def _float_literal(value: float, dtype: torch.dtype) -> str:
    name = cpp_type(dtype)
    if math.isnan(value):
        return f"{name}(NOT_A_NUMBER)"
    if dtype == torch.float32 and not math.isinf(value):
        value = rounded(value, dtype)
    if math.isinf(value):
        return f"{name}({'-' if value < 0 else ''}INF)"
    if dtype == torch.float64:
        return repr(value)
    short = f"{value:.9g}"
    return f"{short}f" if "." in short or "e" in short else f"{short}.0f"


def lanes_of(dtypes: Iterable[torch.dtype], register_bytes: int) -> int:
    """Lanes of a kernel with these dtypes: they fill a register with the most common width of 4 or 8 bytes."""
    widths = [accumulator(d).itemsize for d in dtypes if d != torch.bool]
    wide = sum(w == 8 for w in widths)
    single = sum(w == 4 for w in widths)
    return max(register_bytes // (8 if wide > single else 4), 2)
