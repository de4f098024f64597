"""The operations of the loop IR: the whole vocabulary that a back end has to print.

Each has one row with everything that the core and the conformance kit need: a new operation is a row here, and one in
`ops.py` of each back end that supports it. The rounding of integer division and remainder is explicit (floor: Python's,
trunc: C's). `maximum`, `minimum` and the reductions `max`, `min` propagate NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import attrs
import torch
from torch import Tensor

from armature.lower import philox

FLOATS = (torch.float32, torch.float64)
INTEGERS = (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8)
BOOLS = (torch.bool,)

# Operations that take the same dtypes, and that the conformance kit tests on the same values.
FAMILIES: Mapping[str, tuple[torch.dtype, ...]] = MappingProxyType(
    {
        "arithmetic": FLOATS + INTEGERS,
        "division": FLOATS + INTEGERS,
        "floating": FLOATS,
        "roots": FLOATS,
        "rounding": FLOATS,
        "comparison": FLOATS + INTEGERS,
        "predicates": FLOATS,
        "logic": BOOLS,
        "bits": INTEGERS + BOOLS,
        "shifts": INTEGERS,
        "exponential": FLOATS,
        "trigonometric": FLOATS,
        "hyperbolic": FLOATS,
        "special": FLOATS,
        "series": FLOATS,
    }
)


@attrs.frozen
class OpInfo:
    """One operation.

    arity: the number of operands. meaning: computes the operation on tensors of one dtype; None if it depends on more.
    family: a key of FAMILIES, "" for none. cost: relative to an addition. gives_bool: the result is a bool, else of the
    arguments' dtype. positive: its arguments must be greater than zero. tolerance: the allowed error of kernels,
    relative to max(1, |result|) in float32. sign: its infix form in texts for people.
    """

    arity: int
    meaning: Callable[..., Tensor] | None
    family: str = attrs.field(default="", validator=attrs.validators.in_(("", *FAMILIES)))
    cost: int = 1
    doc: str = ""
    gives_bool: bool = False
    positive: bool = False
    tolerance: float = 4e-6
    sign: str = ""


def _table(**rows: OpInfo) -> Mapping[str, OpInfo]:
    return MappingProxyType(rows)


def _floordiv(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode="floor")


def _truncdiv(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode="trunc")


def _fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return a * b + c


def _product(a: Tensor, b: Tensor) -> Tensor:
    wider = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.int8: torch.int32}.get(a.dtype, a.dtype)
    return a.to(wider) * b.to(wider)


# Orthogonal polynomials, named as in torch.special.
POLYNOMIALS = (
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
)  # fmt: skip

OPS: Mapping[str, OpInfo] = _table(
    add=OpInfo(2, torch.add, "arithmetic", sign="+"),
    sub=OpInfo(2, torch.sub, "arithmetic", sign="-"),
    mul=OpInfo(2, torch.mul, "arithmetic", sign="*"),
    neg=OpInfo(1, torch.neg, "arithmetic"),
    abs=OpInfo(1, torch.abs, "arithmetic"),
    sign=OpInfo(1, torch.sign, "arithmetic"),
    maximum=OpInfo(2, torch.maximum, "arithmetic"),
    minimum=OpInfo(2, torch.minimum, "arithmetic"),
    floordiv=OpInfo(2, _floordiv, "division", 8, "rounds towards minus infinity; integers or floats", sign="//"),
    truncdiv=OpInfo(2, _truncdiv, "division", 8, "rounds towards zero; integers or floats"),
    mod=OpInfo(2, torch.remainder, "division", 8, "remainder with the sign of the divisor", sign="%"),
    fmod=OpInfo(2, torch.fmod, "division", 8, "remainder with the sign of the dividend"),
    div=OpInfo(2, torch.div, "floating", 4, "true division", sign="/"),
    fma=OpInfo(3, _fma, "floating", doc="a*b + c"),
    product=OpInfo(
        2,
        _product,
        doc="a*b of a product of matrices, summed over a loop: float32 of float16, bfloat16 or float32, float64 of "
        "float64, int32 of int8; "
        "a back end may round float32 first where torch.get_float32_matmul_precision() allows",
    ),
    fmax=OpInfo(2, torch.fmax, "floating", doc="NaN only when both are"),
    fmin=OpInfo(2, torch.fmin, "floating", doc="NaN only when both are"),
    copysign=OpInfo(2, torch.copysign, "floating"),
    hypot=OpInfo(2, torch.hypot, "floating", 10),
    nextafter=OpInfo(2, torch.nextafter, "floating", 4),
    logaddexp=OpInfo(2, torch.logaddexp, "floating", 40, "log(exp(a) + exp(b))"),
    floor=OpInfo(1, torch.floor, "rounding"),
    ceil=OpInfo(1, torch.ceil, "rounding"),
    trunc=OpInfo(1, torch.trunc, "rounding"),
    round=OpInfo(1, torch.round, "rounding", doc="half to even"),
    eq=OpInfo(2, torch.eq, "comparison", gives_bool=True, sign="=="),
    ne=OpInfo(2, torch.ne, "comparison", gives_bool=True, sign="!="),
    lt=OpInfo(2, torch.lt, "comparison", gives_bool=True, sign="<"),
    le=OpInfo(2, torch.le, "comparison", gives_bool=True, sign="<="),
    gt=OpInfo(2, torch.gt, "comparison", gives_bool=True, sign=">"),
    ge=OpInfo(2, torch.ge, "comparison", gives_bool=True, sign=">="),
    isnan=OpInfo(1, torch.isnan, "predicates", gives_bool=True),
    isinf=OpInfo(1, torch.isinf, "predicates", gives_bool=True),
    signbit=OpInfo(1, torch.signbit, "predicates", gives_bool=True),
    logical_and=OpInfo(2, torch.logical_and, "logic", gives_bool=True, sign="&"),
    logical_or=OpInfo(2, torch.logical_or, "logic", gives_bool=True, sign="|"),
    logical_xor=OpInfo(2, torch.logical_xor, "logic", gives_bool=True, sign="^"),
    logical_not=OpInfo(1, torch.logical_not, "logic", gives_bool=True),
    bit_and=OpInfo(2, torch.bitwise_and, "bits"),
    bit_or=OpInfo(2, torch.bitwise_or, "bits"),
    bit_xor=OpInfo(2, torch.bitwise_xor, "bits"),
    bit_not=OpInfo(1, torch.bitwise_not, "bits"),
    shift_left=OpInfo(2, torch.bitwise_left_shift, "shifts"),
    shift_right=OpInfo(2, torch.bitwise_right_shift, "shifts", doc="arithmetic for signed integers"),
    where=OpInfo(3, torch.where, doc="where(cond, a, b); both sides are computed"),
    cast=OpInfo(1, None, doc="to the node's dtype; float to int truncates; to bool: != 0"),
    bitcast=OpInfo(1, None, doc="same bits, other dtype of the same width"),
    sqrt=OpInfo(1, torch.sqrt, "roots", 6, positive=True),
    rsqrt=OpInfo(1, torch.rsqrt, "roots", 6, positive=True),
    reciprocal=OpInfo(1, torch.reciprocal, "roots", 4),
    exp=OpInfo(1, torch.exp, "exponential", 10),
    exp2=OpInfo(1, torch.exp2, "exponential", 10),
    expm1=OpInfo(1, torch.expm1, "exponential", 12),
    log=OpInfo(1, torch.log, "exponential", 10, positive=True),
    log2=OpInfo(1, torch.log2, "exponential", 10, positive=True),
    log10=OpInfo(1, torch.log10, "exponential", 10, positive=True),
    log1p=OpInfo(1, torch.log1p, "exponential", 12),
    sigmoid=OpInfo(1, torch.sigmoid, "exponential", 14),
    pow=OpInfo(2, torch.pow, "exponential", 20, tolerance=2e-5),
    sin=OpInfo(1, torch.sin, "trigonometric", 15),
    cos=OpInfo(1, torch.cos, "trigonometric", 15),
    tan=OpInfo(1, torch.tan, "trigonometric", 20, tolerance=2e-5),
    asin=OpInfo(1, torch.asin, "trigonometric", 20),
    acos=OpInfo(1, torch.acos, "trigonometric", 20),
    atan=OpInfo(1, torch.atan, "trigonometric", 20),
    atan2=OpInfo(2, torch.atan2, "trigonometric", 25),
    sinh=OpInfo(1, torch.sinh, "hyperbolic", 20, tolerance=2e-5),
    cosh=OpInfo(1, torch.cosh, "hyperbolic", 20, tolerance=2e-5),
    tanh=OpInfo(1, torch.tanh, "hyperbolic", 15),
    asinh=OpInfo(1, torch.asinh, "hyperbolic", 20),
    acosh=OpInfo(1, torch.acosh, "hyperbolic", 20),
    atanh=OpInfo(1, torch.atanh, "hyperbolic", 20),
    erf=OpInfo(1, torch.erf, "special", 15),
    erfc=OpInfo(1, torch.erfc, "special", 18),
    erfinv=OpInfo(1, torch.erfinv, "special", 25, tolerance=2e-5),
    lgamma=OpInfo(1, torch.lgamma, "special", 40, positive=True, tolerance=2e-5),
    zeta=OpInfo(2, torch.special.zeta, "series", 200, "Hurwitz's, of an exponent and a first base", tolerance=2e-5),
    igamma=OpInfo(2, torch.special.gammainc, "series", 200, tolerance=2e-5),
    igammac=OpInfo(2, torch.special.gammaincc, "series", 200, tolerance=2e-5),
    **{
        name: OpInfo(
            2, getattr(torch.special, name), "series", 60, "of x and a degree, by its recurrence", tolerance=1e-3
        )
        for name in POLYNOMIALS
    },
    uniform=OpInfo(
        5,
        philox.uniform,
        cost=40,
        doc="uniform(seed, offset, element, vector, threads) of int64: `armature.lower.philox.uniform`, in float32; "
        "`vector` and `threads` are literals",
    ),
    check_index=OpInfo(
        2,
        None,
        doc="check_index(i, size): i; the kernel raises IndexError outside 0..size-1",
    ),
)


@attrs.frozen
class ReductionInfo:
    """How a reduction starts, and the operation of OPS that combines two partial results (None: a pair with its
    position)."""

    combine: str | None
    doc: str = ""


REDUCTIONS: Mapping[str, ReductionInfo] = MappingProxyType(
    {
        "sum": ReductionInfo("add"),
        "prod": ReductionInfo("mul"),
        "max": ReductionInfo("maximum", "passes NaN on"),
        "min": ReductionInfo("minimum", "passes NaN on"),
        "logsumexp": ReductionInfo("logaddexp", "of floats"),
        "any": ReductionInfo("logical_or", "of bools"),
        "all": ReductionInfo("logical_and", "of bools"),
        "xor": ReductionInfo("bit_xor"),
        "argmax": ReductionInfo(None, "row-major position of the first largest value; a NaN counts as largest"),
        "argmin": ReductionInfo(None, "row-major position of the first smallest value; a NaN counts as smallest"),
    }
)
