"""Reductions: an accumulator's initial value, its update, and how lanes and threads are combined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import attrs
import torch

from armature_cpu_cpp.vector import literal


@attrs.frozen
class Form:
    """C++ of a reduction: `start` for a dtype, `combine` of accumulator and value, `across` the lanes of a vector."""

    start: Callable[[torch.dtype], str]
    combine: str
    across: str


def _least(dtype: torch.dtype) -> str:
    if dtype.is_floating_point:
        return literal(float("-inf"), dtype)
    return literal(torch.iinfo(dtype).min, dtype) if dtype != torch.bool else "false"


def _most(dtype: torch.dtype) -> str:
    if dtype.is_floating_point:
        return literal(float("inf"), dtype)
    return literal(torch.iinfo(dtype).max, dtype) if dtype != torch.bool else "true"


def _number(value: int) -> Callable[[torch.dtype], str]:
    return lambda dtype: literal(value, dtype)


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "sum": Form(_number(0), "{0} + {1}", "across_sum({0})"),
        "prod": Form(_number(1), "{0} * {1}", "across_product({0})"),
        "max": Form(_least, "maximum({0}, {1})", "across_maximum({0})"),
        "min": Form(_most, "minimum({0}, {1})", "across_minimum({0})"),
        "any": Form(_number(0), "{0} | {1}", "any({0})"),
        "all": Form(_number(1), "{0} & {1}", "all({0})"),
        "xor": Form(_number(0), "{0} ^ {1}", "across_xor({0})"),
    }
)


def function(op: str) -> str:
    """The operation by which a reduction combines, as a function in C++."""
    return f"[](auto a, auto b) {{ return {FORMS[op].combine.format('a', 'b')}; }}"


POSITIONS: Mapping[str, tuple[Callable[[torch.dtype], str], str]] = MappingProxyType(
    {"argmax": (_least, "true"), "argmin": (_most, "false")}
)
"""Reductions to a position: the initial value, and whether larger is better."""
