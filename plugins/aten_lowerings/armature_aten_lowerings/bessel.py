"""Bessel functions as polynomials, with the coefficients and ranges of torch's kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import torch

from armature.backend_api import Builder, Node, TensorValue
from armature.plugin_api import Lowering, overload
from armature_aten_lowerings.bessel_tables import I0, I1, K0, K1, ORDER_0, ORDER_1

Table = Mapping[str, tuple[float, ...]]
Function = Callable[[Builder, Node], Node]
NEAR_ENOUGH = 1e-5  # below this J0 is a parabola


def polynomial(b: Builder, x: Node, coefficients: Sequence[float]) -> Node:
    """By Horner's rule, the highest power first."""
    total: Node = b.const(coefficients[0], x.dtype)
    for coefficient in coefficients[1:]:
        total = b.op("add", b.op("mul", total, x), b.const(coefficient, x.dtype))
    return total


def chebyshev(b: Builder, x: Node, coefficients: Sequence[float]) -> Node:
    """A Chebyshev series by Clenshaw's rule, over twice the variable; without terms that no digit shows."""
    least = torch.finfo(x.dtype).eps / 16 * max(map(abs, coefficients))
    before: Node = b.const(0, x.dtype)
    older, last = before, before
    for coefficient in itertools.dropwhile(lambda value: abs(value) < least, coefficients):
        older, last, before = last, before, _next(b, x, before, last, coefficient)
    return b.op("mul", b.const(0.5, x.dtype), b.op("sub", before, older))


def _next(b: Builder, x: Node, last: Node, older: Node, coefficient: float) -> Node:
    return b.op("add", b.op("sub", b.op("mul", x, last), older), b.const(coefficient, x.dtype))


def _ratio(b: Builder, x: Node, table: Table, name: str) -> Node:
    return b.op("div", polynomial(b, x, table[f"{name} over"]), polynomial(b, x, table[f"{name} under"]))


def _number(b: Builder, value: float, like: Node) -> Node:
    return b.const(value, like.dtype)


def _waves(b: Builder, x: Node, table: Table, shift: float, second: bool) -> Node:
    """J, or the second kind Y, at `x` above 5: a cosine and a sine of decreasing height."""
    part = b.op("div", _number(b, 5, x), x)
    square = b.op("mul", part, part)
    along, across = _ratio(b, square, table, "cosine"), b.op("mul", part, _ratio(b, square, table, "sine"))
    angle = b.op("sub", x, _number(b, shift, x))
    one, other = ("sin", "cos") if second else ("cos", "sin")
    waves = b.op(
        "add" if second else "sub", b.op("mul", along, b.op(one, angle)), b.op("mul", across, b.op(other, angle))
    )
    return b.op("div", b.op("mul", waves, _number(b, math.sqrt(2 / math.pi), x)), b.op("sqrt", x))


def _roots(b: Builder, square: Node, *roots: float) -> Node:
    """The product of `square - root`."""
    first, second = (b.op("sub", square, _number(b, root, square)) for root in roots)
    return b.op("mul", first, second)


def j0(b: Builder, x: Node) -> Node:
    """The first kind, of order 0."""
    x = b.op("abs", x)
    square = b.op("mul", x, x)
    roots = _roots(b, square, 5.78318596294678452118, 30.4712623436620863991)
    near = b.op("mul", roots, _ratio(b, square, ORDER_0, "near"))
    parabola = b.op("sub", _number(b, 1, x), b.op("mul", square, _number(b, 0.25, x)))
    near = b.where(b.op("lt", x, _number(b, NEAR_ENOUGH, x)), parabola, near)
    return b.where(b.op("le", x, _number(b, 5, x)), near, _waves(b, x, ORDER_0, math.pi / 4, False))


def j1(b: Builder, x: Node) -> Node:
    """The first kind, of order 1."""
    size = b.op("abs", x)
    square = b.op("mul", x, x)
    roots = _roots(b, square, 14.6819706421238932572, 49.2184563216946036703)
    near = b.op("mul", b.op("mul", _ratio(b, square, ORDER_1, "near"), size), roots)
    found = b.where(b.op("le", size, _number(b, 5, x)), near, _waves(b, size, ORDER_1, 0.75 * math.pi, False))
    return b.where(b.op("lt", x, _number(b, 0, x)), b.op("neg", found), found)


def _with_pole(b: Builder, x: Node, value: Node, at_zero: float) -> Node:
    """A function of positive numbers: infinite at 0, NaN below."""
    value = b.where(b.op("eq", x, _number(b, 0, x)), _number(b, at_zero, x), value)
    return b.where(b.op("lt", x, _number(b, 0, x)), _number(b, math.nan, x), value)


def y0(b: Builder, x: Node) -> Node:
    """The second kind, of order 0."""
    square = b.op("mul", x, x)
    product = b.op("mul", b.op("mul", _number(b, 2 / math.pi, x), b.op("log", x)), j0(b, x))
    near = b.op("add", _ratio(b, square, ORDER_0, "second"), product)
    far = _waves(b, x, ORDER_0, math.pi / 4, True)
    return _with_pole(b, x, b.where(b.op("le", x, _number(b, 5, x)), near, far), -math.inf)


def y1(b: Builder, x: Node) -> Node:
    """The second kind, of order 1."""
    square = b.op("mul", x, x)
    product = b.op("sub", b.op("mul", j1(b, x), b.op("log", x)), b.op("div", _number(b, 1, x), x))
    smooth = b.op("mul", x, _ratio(b, square, ORDER_1, "second"))
    near = b.op("add", smooth, b.op("mul", _number(b, 2 / math.pi, x), product))
    far = _waves(b, x, ORDER_1, 0.75 * math.pi, True)
    return _with_pole(b, x, b.where(b.op("le", x, _number(b, 5, x)), near, far), -math.inf)


def _growing(b: Builder, size: Node, table: Table, order: int) -> Node:
    """The modified first kind at `size` >= 0, times exp(-size)."""
    half = b.op("sub", b.op("mul", size, _number(b, 0.5, size)), _number(b, 2, size))
    near = chebyshev(b, half, table["near"])
    near = b.op("mul", near, size) if order else near
    far = chebyshev(b, b.op("sub", b.op("div", _number(b, 32, size), size), _number(b, 2, size)), table["far"])
    return b.where(b.op("le", size, _number(b, 8, size)), near, b.op("div", far, b.op("sqrt", size)))


def i0e(b: Builder, x: Node) -> Node:
    """The modified first kind of order 0, times exp(-|x|)."""
    return _growing(b, b.op("abs", x), I0, 0)


def i0(b: Builder, x: Node) -> Node:
    """The modified first kind, of order 0."""
    return b.op("mul", b.op("exp", b.op("abs", x)), i0e(b, x))


def i1e(b: Builder, x: Node) -> Node:
    """The modified first kind of order 1, times exp(-|x|)."""
    found = _growing(b, b.op("abs", x), I1, 1)
    return b.where(b.op("lt", x, _number(b, 0, x)), b.op("neg", found), found)


def i1(b: Builder, x: Node) -> Node:
    """The modified first kind, of order 1."""
    return b.op("mul", b.op("exp", b.op("abs", x)), i1e(b, x))


def _falling(b: Builder, x: Node, table: Table, order: int, scaled: bool) -> Node:
    """The modified second kind; scaled: times exp(x)."""
    series = chebyshev(b, b.op("sub", b.op("mul", x, x), _number(b, 2, x)), table["near"])
    logarithm = b.op("log", b.op("mul", _number(b, 0.5, x), x))
    if order:
        near = b.op("add", b.op("mul", logarithm, i1(b, x)), b.op("div", series, x))
    else:
        near = b.op("sub", series, b.op("mul", logarithm, i0(b, x)))
    far = chebyshev(b, b.op("sub", b.op("div", _number(b, 8, x), x), _number(b, 2, x)), table["far"])
    far = b.op("div", far, b.op("sqrt", x))
    if scaled:
        near = b.op("mul", near, b.op("exp", x))
    else:
        far = b.op("mul", b.op("exp", b.op("neg", x)), far)
    return _with_pole(b, x, b.where(b.op("le", x, _number(b, 2, x)), near, far), math.inf)


def spherical_j0(b: Builder, x: Node) -> Node:
    """`sin(x) / x`; near 0 its series."""
    series = [(-1) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1)]
    near = polynomial(b, b.op("mul", x, x), series)
    found = b.where(b.op("lt", b.op("abs", x), _number(b, 0.5, x)), near, b.op("div", b.op("sin", x), x))
    return b.where(b.op("isinf", x), _number(b, 0, x), found)


def pointwise(function: Function) -> Callable[[Builder, TensorValue], TensorValue]:
    """The lowering of an operator with one argument."""
    return lambda b, x: b.pointwise(lambda value: function(b, value), x, dtype=b.spec().dtype)


FUNCTIONS: Mapping[str, Function] = {
    "special_bessel_j0": j0,
    "special_bessel_j1": j1,
    "special_bessel_y0": y0,
    "special_bessel_y1": y1,
    "special_spherical_bessel_j0": spherical_j0,
    "i0": i0,
    "special_i0e": i0e,
    "special_i1": i1,
    "special_i1e": i1e,
    "special_modified_bessel_i0": i0,
    "special_modified_bessel_i1": i1,
    "special_modified_bessel_k0": lambda b, x: _falling(b, x, K0, 0, False),
    "special_modified_bessel_k1": lambda b, x: _falling(b, x, K1, 1, False),
    "special_scaled_modified_bessel_k0": lambda b, x: _falling(b, x, K0, 0, True),
    "special_scaled_modified_bessel_k1": lambda b, x: _falling(b, x, K1, 1, True),
}
LOWERINGS = [Lowering(op, pointwise(fn)) for name, fn in FUNCTIONS.items() if (op := overload(name)) is not None]
