"""The operations of the loop IR: the whole vocabulary that a back end has to print.

Semantics are those of the ATen operator of the same name on one element. Integer division and remainder are spelled out
(floor: Python's, trunc: C's). `maximum`, `minimum` and the reductions `max`, `min` pass NaN on.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs


@attrs.frozen
class OpInfo:
    """How many values the operation takes, what it costs (1: an addition) and what it means."""

    arity: int
    cost: int = 1
    doc: str = ""


def _table(**rows: OpInfo) -> Mapping[str, OpInfo]:
    return MappingProxyType(rows)


OPS: Mapping[str, OpInfo] = _table(
    # arithmetic
    add=OpInfo(2), sub=OpInfo(2), mul=OpInfo(2), neg=OpInfo(1), abs=OpInfo(1), sign=OpInfo(1),
    div=OpInfo(2, 4, "true division of floating values"),
    floordiv=OpInfo(2, 8, "rounds towards minus infinity; integers or floats"),
    truncdiv=OpInfo(2, 8, "rounds towards zero; integers or floats"),
    mod=OpInfo(2, 8, "remainder with the sign of the divisor (torch.remainder)"),
    fmod=OpInfo(2, 8, "remainder with the sign of the dividend"),
    pow=OpInfo(2, 20), fma=OpInfo(3, 1, "a*b + c"),
    maximum=OpInfo(2), minimum=OpInfo(2),
    fmax=OpInfo(2, 1, "NaN only when both are"), fmin=OpInfo(2, 1, "NaN only when both are"),
    # rounding
    floor=OpInfo(1), ceil=OpInfo(1), trunc=OpInfo(1), round=OpInfo(1, 1, "half to even"),
    # comparison: result bool
    eq=OpInfo(2), ne=OpInfo(2), lt=OpInfo(2), le=OpInfo(2), gt=OpInfo(2), ge=OpInfo(2),
    isnan=OpInfo(1), isinf=OpInfo(1), signbit=OpInfo(1),
    # logic on bools, bits of integers (and bools)
    logical_and=OpInfo(2), logical_or=OpInfo(2), logical_xor=OpInfo(2), logical_not=OpInfo(1),
    bit_and=OpInfo(2), bit_or=OpInfo(2), bit_xor=OpInfo(2), bit_not=OpInfo(1),
    shift_left=OpInfo(2), shift_right=OpInfo(2, 1, "arithmetic for signed integers"),
    # selection and conversion
    where=OpInfo(3, 1, "where(cond, a, b); both sides are computed"),
    cast=OpInfo(1, 1, "to the node's dtype; float to int truncates; to bool: != 0"),
    bitcast=OpInfo(1, 1, "same bits, other dtype of the same width"),
    # roots, exponentials, logarithms
    sqrt=OpInfo(1, 6), rsqrt=OpInfo(1, 6), reciprocal=OpInfo(1, 4),
    exp=OpInfo(1, 10), exp2=OpInfo(1, 10), expm1=OpInfo(1, 12),
    log=OpInfo(1, 10), log2=OpInfo(1, 10), log10=OpInfo(1, 10), log1p=OpInfo(1, 12),
    sigmoid=OpInfo(1, 14),
    # trigonometry
    sin=OpInfo(1, 15), cos=OpInfo(1, 15), tan=OpInfo(1, 20), asin=OpInfo(1, 20), acos=OpInfo(1, 20), atan=OpInfo(1, 20),
    sinh=OpInfo(1, 20), cosh=OpInfo(1, 20), tanh=OpInfo(1, 15), asinh=OpInfo(1, 20), acosh=OpInfo(1, 20),
    atanh=OpInfo(1, 20),
    atan2=OpInfo(2, 25), hypot=OpInfo(2, 10), copysign=OpInfo(2),
    # special functions
    erf=OpInfo(1, 15), erfc=OpInfo(1, 18), erfinv=OpInfo(1, 25), lgamma=OpInfo(1, 40), nextafter=OpInfo(2, 4),
    # indices
    check_index=OpInfo(
        2, 1, "check_index(i, size): i, wrapped when negative; the kernel raises IndexError outside -size..size-1"
    ),
)  # fmt: skip


@attrs.frozen
class ReductionInfo:
    """How a reduction starts and what combines two partial results (an operation of OPS; None: a pair with its
    position)."""

    combine: str | None
    doc: str = ""


REDUCTIONS: Mapping[str, ReductionInfo] = MappingProxyType(
    {
        "sum": ReductionInfo("add"),
        "prod": ReductionInfo("mul"),
        "max": ReductionInfo("maximum", "passes NaN on"),
        "min": ReductionInfo("minimum", "passes NaN on"),
        "any": ReductionInfo("logical_or", "of bools"),
        "all": ReductionInfo("logical_and", "of bools"),
        "xor": ReductionInfo("bit_xor"),
        "argmax": ReductionInfo(None, "row-major position of the first largest value; a NaN counts as largest"),
        "argmin": ReductionInfo(None, "row-major position of the first smallest value; a NaN counts as smallest"),
    }
)
