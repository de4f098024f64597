"""Arithmetic with complex numbers as arithmetic with their real and imaginary parts, on nodes of a graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, cast

import attrs
import torch
from torch import Tensor, fx
from torch.fx.node import Argument

from armature_aten_lowerings.common import add_call

aten = torch.ops.aten


class NotWritten(Exception):
    """These arguments have no form as parts: the operator stays a call."""


@attrs.frozen(eq=False)
class Real:
    """A real tensor of the graph. Operators add a call where the graph is being written, attributed to `like`."""

    node: fx.Node
    like: fx.Node

    @property
    def value(self) -> Tensor:
        """The tensor's fake."""
        value: Tensor = self.node.meta["val"]
        return value

    def call(self, target: Callable[..., object], *args: object, **options: object) -> Real:
        """An operator of this tensor and further arguments."""
        given = {name: plain(value) for name, value in options.items()}
        return Real(add_call(self.like, target, self.node, *map(plain, args), **given), self.like)

    def with_(self, operator: torch._ops.OpOverloadPacket, other: Part) -> Real:
        """An operator that has an overload for numbers."""
        return self.call(operator.Tensor if isinstance(other, Real) else operator.Scalar, other)

    def to(self, dtype: torch.dtype) -> Real:
        """The same numbers in a dtype."""
        return self if self.value.dtype == dtype else self.call(aten._to_copy.default, dtype=dtype)

    def __add__(self, other: Part) -> Real:
        return self.with_(aten.add, other)

    __radd__ = __add__

    def __sub__(self, other: Part) -> Real:
        return self if _is_number(other, 0.0) else self.with_(aten.sub, other)

    def __rsub__(self, other: float) -> Real:
        return self.call(aten.rsub.Scalar, other)

    def __mul__(self, other: Part) -> Real:
        return self if _is_number(other, 1.0) else self.with_(aten.mul, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Part) -> Real:
        return self.with_(aten.div, other)

    def __rtruediv__(self, other: float) -> Real:
        inverse = self.call(aten.reciprocal.default)
        return inverse if other == 1 else inverse * other

    def __neg__(self) -> Real:
        return self.call(aten.neg.default)

    def __abs__(self) -> Real:
        return self.call(aten.abs.default)


Part: TypeAlias = Real | float


@attrs.frozen(eq=False)
class Pair:
    """A complex tensor, or number, as its real and imaginary parts."""

    re: Part
    im: Part

    def map(self, change: Callable[[Real], Real]) -> Pair:
        """Both parts changed in the same way. Numbers stay."""
        return Pair(*(change(part) if isinstance(part, Real) else part for part in (self.re, self.im)))

    def tensors(self) -> tuple[Real, Real]:
        """Both parts as tensors. Errors: NotWritten, if neither is one."""
        if isinstance(self.re, Real):
            return self.re, filled(self.re, self.im)
        if isinstance(self.im, Real):
            return filled(self.im, self.re), self.im
        raise NotWritten


def plain(value: object) -> Argument:
    """The argument of a call: the node of a tensor."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.node if isinstance(value, Real) else cast(Argument, value)


def filled(like: Real, part: Part) -> Real:
    """The part as a tensor."""
    return part if isinstance(part, Real) else like.call(aten.full_like.default, part)


def where(condition: Real, chosen: Part, other: Part) -> Real:
    """A choice for each element."""
    kinds = isinstance(chosen, Real), isinstance(other, Real)
    return condition.call(WHERE[kinds], chosen, other)


WHERE = {
    (True, True): aten.where.self, (True, False): aten.where.ScalarOther,
    (False, True): aten.where.ScalarSelf, (False, False): aten.where.Scalar,
}  # fmt: skip


def add(x: Pair, y: Pair) -> Pair:
    """`x + y`."""
    return Pair(x.re + y.re, x.im + y.im)


def subtract(x: Pair, y: Pair) -> Pair:
    """`x - y`."""
    return Pair(x.re - y.re, x.im - y.im)


def multiply(x: Pair, y: Pair) -> Pair:
    """`x * y`, with the products that ATen computes, also those with a part of 0: they pass on infinity and NaN."""
    return Pair(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def negate(x: Pair) -> Pair:
    """`-x`."""
    return Pair(-x.re, -x.im)


def conjugate(x: Pair) -> Pair:
    """`x` with the other sign of its imaginary part."""
    return Pair(x.re, -x.im)


def divide(x: Pair, y: Pair) -> Pair:
    """`x / y` as c10::complex computes it: scaled by the larger part of the divisor, so that no square overflows.
    Errors: NotWritten, for a number 0."""
    if not isinstance(y.re, Real) and not isinstance(y.im, Real):
        return _divided_by_number(x, y.re, y.im)
    re, im = y.tensors()
    if not isinstance(x.re, Real) and not isinstance(x.im, Real):
        x = Pair(filled(re, x.re), x.im)
    keep = abs(re).with_(aten.ge, abs(im))
    big, small = where(keep, re, im), where(keep, im, re)
    first, second = where(keep, x.re, x.im), where(keep, x.im, x.re)
    ratio = small / big
    scale = 1.0 / (big + small * ratio)
    turned = first * ratio
    size = abs(re) + abs(im)
    zero = size.with_(aten.eq, 0.0)  # then the parts are infinite or NaN
    return Pair(
        where(zero, x.re / size, (first + second * ratio) * scale),
        where(zero, x.im / size, where(keep, second - turned, turned - second) * scale),
    )


def _divided_by_number(x: Pair, re: float, im: float) -> Pair:
    if re == im == 0 or not math.isfinite(re) or not math.isfinite(im):
        raise NotWritten
    if abs(re) >= abs(im):
        ratio = im / re
        scale = 1 / (re + im * ratio)
        return Pair((x.re + x.im * ratio) * scale, (x.im - x.re * ratio) * scale)
    ratio = re / im
    scale = 1 / (re * ratio + im)
    return Pair((x.re * ratio + x.im) * scale, (x.im * ratio - x.re) * scale)


def size_of(x: Pair) -> Real:
    """The absolute value, without squares that overflow."""
    re, im = x.tensors()
    return re.call(aten.hypot.default, im)


def angle(x: Pair) -> Real:
    """The angle from the positive real axis."""
    re, im = x.tensors()
    return im.call(aten.atan2.default, re)


def direction(x: Pair) -> Pair:
    """`sgn`: the number divided by its absolute value; 0 stays 0."""
    size = size_of(x)
    zero = size.with_(aten.eq, 0.0)
    return Pair(where(zero, 0.0, x.re / size), where(zero, 0.0, x.im / size))


def polar(size: Part, turn: Real) -> Pair:
    """The number of an absolute value and an angle."""
    return Pair(turn.call(aten.cos.default) * size, turn.call(aten.sin.default) * size)


def exponential(x: Pair) -> Pair:
    """`exp(x)`. A real number stays one, also where its exponential is infinite. Of an infinite number plus i times an
    infinite one or NaN both parts are NaN; C's cexp makes the first infinite or 0."""
    re, im = x.tensors()
    size = re.call(aten.exp.default)
    return Pair(
        size * im.call(aten.cos.default),
        where(im.with_(aten.eq, 0.0), im, size * im.call(aten.sin.default)),
    )


def power(x: Pair, exponent: complex) -> Pair:
    """A power by multiplications, as ATen computes small ones. Errors: NotWritten, for all others."""
    if exponent not in (1, 2, 3, -1, -2):
        raise NotWritten
    exponent = exponent.real
    square = x if abs(exponent) == 1 else multiply(x, x)
    return multiply(square, x) if exponent == 3 else square if exponent > 0 else divide(Pair(1.0, 0.0), square)


def _is_number(part: object, number: float) -> bool:
    return isinstance(part, float) and part == number and math.copysign(1, part) == math.copysign(1, number)
