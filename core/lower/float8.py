"""Floats of 8 bits: kernels load and store their bits, and compute with them in float32.

The formulas have the meaning of ATen's conversions for every value: rounding to the nearest, ties to even. What is too
large becomes infinite in `float8_e5m2`, and the largest number in `float8_e4m3fn`, which has no infinity (NaN in older
versions of torch). They are of integers, so that every device has them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import attrs
import torch

from armature.lower.data import Node
from armature.torch_abi.memory import HOST


class Verbs(Protocol):
    """What `Elements` makes nodes with."""

    def const(self, value: int | float, dtype: torch.dtype) -> Node: ...

    def op(self, name: str, *args: Node | int | float, dtype: torch.dtype | None = None) -> Node: ...

    def cast(self, value: Node, dtype: torch.dtype) -> Node: ...

    def where(self, cond: Node, then: Node, other: Node) -> Node: ...


FLOAT32_BITS, FLOAT32_BIAS = 23, 127
MAGNITUDE = 0x7F  # all bits but the sign's


@attrs.frozen
class Format:
    """Where the parts of a number are. mantissa: its bits. bias: of the exponent. infinity: the bits of the first
    magnitude that is not a finite number. beyond: the bits of what is too large. nan: those of a NaN."""

    mantissa: int
    bias: int
    infinity: int
    beyond: int
    nan: int = 0x7F

    @property
    def shift(self) -> int:
        """From the last bit of a mantissa to that of a float32's."""
        return FLOAT32_BITS - self.mantissa

    @property
    def offset(self) -> int:
        """From an exponent to a float32's, in its place there."""
        return (FLOAT32_BIAS - self.bias) << FLOAT32_BITS

    @property
    def least(self) -> float:
        """The smallest number with a whole mantissa."""
        return 2.0 ** (1 - self.bias)


def bits_beyond(dtype: torch.dtype) -> int:
    """The bits of what infinity becomes."""
    return int(torch.full((1,), math.inf, device=HOST).to(dtype).view(torch.uint8))


FORMATS: Mapping[torch.dtype, Format] = MappingProxyType({
    torch.float8_e4m3fn: Format(mantissa=3, bias=7, infinity=0x7F, beyond=bits_beyond(torch.float8_e4m3fn)),
    torch.float8_e5m2: Format(mantissa=2, bias=15, infinity=0x7C, beyond=bits_beyond(torch.float8_e5m2)),
})  # fmt: skip


def decoded(b: Verbs, value: Node) -> Node:
    """A float32 of the same value, exactly."""
    form = FORMATS[value.dtype]
    bits = b.cast(b.op("bitcast", value, dtype=torch.uint8), torch.int32)
    magnitude = b.op("bit_and", bits, MAGNITUDE)
    wide = b.op("add", b.op("shift_left", magnitude, form.shift), form.offset)
    number = b.op("bitcast", wide, dtype=torch.float32)
    # Below the least whole mantissa, the first bit that is implied otherwise has to be taken away.
    small = b.op("lt", magnitude, 1 << form.mantissa)
    number = b.where(small, b.op("mul", b.op("sub", number, form.least / 2), 2.0), number)
    special = b.const(float("nan"), torch.float32)
    if form.infinity != form.nan:
        infinite = b.op("eq", magnitude, form.infinity)
        special = b.where(infinite, b.const(float("inf"), torch.float32), special)
    number = b.where(b.op("ge", magnitude, form.infinity), special, number)
    return b.where(b.op("ge", bits, 1 << 7), b.op("neg", number), number)


def encoded(b: Verbs, value: Node, dtype: torch.dtype) -> Node:
    """The nearest number of the dtype; `value` is of float32."""
    form = FORMATS[dtype]
    bits = b.op("bitcast", value, dtype=torch.int32)
    magnitude = b.op("bit_and", bits, 0x7FFFFFFF)
    # Adding a power of two whose last bit is worth the smallest number rounds to multiples of that.
    power = form.least * 2.0 ** (FLOAT32_BITS - form.mantissa)
    small = b.op("add", b.op("bitcast", magnitude, dtype=torch.float32), power)
    small = b.op("sub", b.op("bitcast", small, dtype=torch.int32), bits_of(power))
    odd = b.op("bit_and", b.op("shift_right", magnitude, form.shift), 1)
    rounded = b.op("add", b.op("add", magnitude, (1 << form.shift - 1) - 1 - form.offset), odd)
    found = b.op("shift_right", rounded, form.shift)
    found = b.where(b.op("lt", magnitude, bits_of(form.least)), small, b.op("minimum", found, form.beyond))
    found = b.where(b.op("gt", magnitude, bits_of(float("inf"))), b.const(form.nan, torch.int32), found)
    sign = b.op("bit_and", b.op("shift_right", bits, 24), 1 << 7)
    return b.op("bitcast", b.cast(b.op("bit_or", found, sign), torch.uint8), dtype=dtype)


def bits_of(value: float) -> int:
    """The bits of a float32."""
    return int(torch.tensor(value, dtype=torch.float32).view(torch.int32))
