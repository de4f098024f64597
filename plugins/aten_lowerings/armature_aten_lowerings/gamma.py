"""Derivatives of the logarithm of the gamma function, Hurwitz's zeta function, and incomplete gamma functions.

The first two derivatives are computed as torch's kernels do (from the Cephes library).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import torch

from armature.backend_api import Builder, Node, NotSupported, ScalarValue, TensorValue, lowers
from armature_aten_lowerings.bessel import polynomial

aten = torch.ops.aten
FAR = 10  # from here on the asymptotic series is exact enough
ASYMPTOTIC = (
    8.33333333333333333333e-2, -2.10927960927960927961e-2, 7.57575757575757575758e-3, -4.16666666666666666667e-3,
    3.96825396825396825397e-3, -8.33333333333333333333e-3, 8.33333333333333333333e-2,
)  # fmt: skip
STEPS_OF_SECOND = 6  # by which the second derivative's argument is moved before its series
BERNOULLI = (
    Fraction(1, 6), Fraction(-1, 30), Fraction(1, 42), Fraction(-1, 30), Fraction(5, 66), Fraction(-691, 2730),
    Fraction(7, 6), Fraction(-3617, 510), Fraction(43867, 798), Fraction(-174611, 330),
)  # fmt: skip
"""Those with even numbers, from the second."""
STEPS_OF_ZETA = 9  # terms that are summed before the rest is a series
HIGHEST = 20  # the highest derivative whose factors fit in float32


def first(b: Builder, x: Node) -> Node:
    """The first derivative: of numbers below 10 from those above, of negative ones by reflection."""
    kind = x.dtype
    zero, one = b.const(0, kind), b.const(1, kind)
    below = b.op("lt", x, zero)
    moved = b.where(below, b.op("sub", one, x), x)
    total: Node = zero
    for _ in range(FAR):
        near = b.op("lt", moved, b.const(FAR, kind))
        total = b.where(near, b.op("sub", total, b.op("reciprocal", moved)), total)
        moved = b.where(near, b.op("add", moved, one), moved)
    inverse = b.op("reciprocal", b.op("mul", moved, moved))
    series = b.op("mul", inverse, polynomial(b, inverse, ASYMPTOTIC))
    half = b.op("div", b.const(0.5, kind), moved)
    total = b.op("sub", b.op("sub", b.op("add", total, b.op("log", moved)), half), series)
    whole = b.op("trunc", x)
    angle = b.op("mul", b.const(math.pi, kind), b.op("sub", x, whole))
    reflected = b.op("sub", total, b.op("div", b.const(math.pi, kind), b.op("tan", angle)))
    reflected = b.where(b.op("eq", x, whole), b.const(math.nan, kind), reflected)
    found = b.where(below, reflected, total)
    pole = b.op("copysign", b.const(math.inf, kind), b.op("neg", x))
    return b.where(b.op("eq", x, zero), pole, found)


def second(b: Builder, x: Node) -> Node:
    """The second derivative: moved by a few steps, of numbers below one half by reflection."""
    kind = x.dtype
    one = b.const(1, kind)
    below = b.op("lt", x, b.const(0.5, kind))
    moved = b.where(below, b.op("sub", one, x), x)
    sine = b.op("sin", b.op("mul", b.const(math.pi, kind), x))
    total: Node = b.const(0, kind)
    for _ in range(STEPS_OF_SECOND):
        total = b.op("add", total, b.op("reciprocal", b.op("mul", moved, moved)))
        moved = b.op("add", moved, one)
    inverse = b.op("reciprocal", b.op("mul", moved, moved))
    series = polynomial(b, inverse, (1 / 42, -1 / 30, 1 / 6))
    half = b.op("div", b.const(0.5, kind), moved)
    rest = b.op("add", b.op("add", one, half), b.op("mul", inverse, series))
    total = b.op("add", total, b.op("div", rest, moved))
    reflected = b.op("sub", b.op("div", b.const(math.pi**2, kind), b.op("mul", sine, sine)), total)
    return b.where(below, reflected, total)


def _whole_power(b: Builder, x: Node, exponent: int) -> Node:
    """x**exponent, by squares."""
    found: Node | None = None
    while True:
        if exponent % 2:
            found = x if found is None else b.op("mul", found, x)
        exponent //= 2
        if not exponent:
            return b.const(1, x.dtype) if found is None else found
        x = b.op("mul", x, x)


def _sum_of_powers(b: Builder, s: int, q: Node) -> Node:
    """The sum of 1 / (q + k)**s over all k >= 0 for q > 0: some terms, then Euler and Maclaurin's formula."""
    kind = q.dtype
    total: Node = b.const(0, kind)
    for k in range(STEPS_OF_ZETA):
        total = b.op("add", total, _whole_power(b, b.op("reciprocal", b.op("add", q, b.const(k, kind))), s))
    inverse = b.op("reciprocal", b.op("add", q, b.const(STEPS_OF_ZETA, kind)))
    factors, least = [], torch.finfo(kind).eps / 16
    for k, number in enumerate(BERNOULLI, 1):
        factor = float(number * math.prod(range(s, s + 2 * k - 1)) / math.factorial(2 * k))
        if abs(factor) * (s - 1) < least * float(STEPS_OF_ZETA) ** (2 * k):
            break
        factors.append(factor)
    square = b.op("mul", inverse, inverse)
    series = b.op("mul", square, polynomial(b, square, factors[::-1]))
    rest = b.op("add", b.op("mul", b.const(0.5, kind), inverse), series)
    rest = b.op("add", b.const(1 / (s - 1), kind), rest)
    return b.op("add", total, b.op("mul", _whole_power(b, inverse, s - 1), rest))


def _derivative_of_cotangent(order: int) -> list[int]:
    """The coefficients, the highest power first, of the polynomial in cot(x) that is its derivative."""
    found = [0, 1]  # the lowest power first
    for _ in range(order):
        slope = [k * value for k, value in enumerate(found)][1:]  # times -(1 + cot(x)**2)
        found = [-(low + high) for low, high in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    return found[::-1]


def hurwitz(b: Builder, s: int, q: Node) -> Node:
    """Hurwitz's zeta function of a whole number s >= 2: but for a factor, a derivative of digamma. Of negative q by
    reflection; as in torch's kernel, infinite at its poles and NaN at infinity."""
    kind, order = q.dtype, s - 1
    zero, one = b.const(0, kind), b.const(1, kind)
    below = b.op("lt", q, zero)
    total = _sum_of_powers(b, s, b.where(below, b.op("sub", one, q), q))
    rest = b.op("sub", q, b.op("round", q))
    other = b.op("sub", b.const(0.5, kind), b.op("abs", rest))  # its sine is the cosine, and exactly 0 halfway
    sines = (b.op("sin", b.op("mul", b.const(math.pi, kind), angle)) for angle in (other, rest))
    cotangent = b.op("div", *sines)
    factor = Fraction((-1) ** order, math.factorial(order))
    waves = polynomial(b, cotangent, [float(factor * value) for value in _derivative_of_cotangent(order)])
    waves = b.op("mul", b.const(math.pi**s, kind), waves)
    reflected = b.op("sub" if order % 2 else "add", waves, total)
    pole = b.op("logical_and", b.op("le", q, zero), b.op("eq", q, b.op("floor", q)))
    found = b.where(pole, b.const(math.inf, kind), b.where(below, reflected, total))
    return b.where(b.op("eq", q, b.const(math.inf, kind)), b.const(math.nan, kind), found)


def _pointwise(b: Builder, function: Callable[[Builder, Node], Node], x: TensorValue) -> TensorValue:
    return b.pointwise(lambda value: function(b, value), x, dtype=b.spec().dtype)


@lowers(aten.digamma.default)
def digamma(b: Builder, x: TensorValue) -> TensorValue:
    return _pointwise(b, first, x)


@lowers(aten.polygamma.default)
def polygamma(b: Builder, n: int, x: TensorValue) -> TensorValue:
    if n > HIGHEST:
        raise NotSupported(f"a derivative above the {HIGHEST}th")
    if n < 2:
        return _pointwise(b, second if n else first, x)
    factor = float((-1) ** (n + 1) * math.factorial(n))
    return _pointwise(b, lambda b, value: b.op("mul", b.const(factor, value.dtype), hurwitz(b, n + 1, value)), x)


@lowers(aten.special_zeta.default, aten.special_zeta.other_scalar, aten.special_zeta.self_scalar)
def zeta(b: Builder, s: TensorValue | float | ScalarValue, q: TensorValue | float | ScalarValue) -> TensorValue:
    """An expression for exponents that are small whole numbers, an operation of loops for others."""
    if isinstance(s, (int, float)) and isinstance(q, TensorValue) and s in range(2, HIGHEST + 2):
        return _pointwise(b, lambda b, value: hurwitz(b, int(s), value), q)
    return b.pointwise("zeta", s, q, dtype=b.spec().dtype)


@lowers(aten.igamma.default)
def igamma(b: Builder, a: TensorValue, x: TensorValue) -> TensorValue:
    return b.pointwise("igamma", a, x, dtype=b.spec().dtype)


@lowers(aten.igammac.default)
def igammac(b: Builder, a: TensorValue, x: TensorValue) -> TensorValue:
    return b.pointwise("igammac", a, x, dtype=b.spec().dtype)
