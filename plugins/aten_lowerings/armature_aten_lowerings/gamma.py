"""Derivatives of the logarithm of the gamma function, as torch's kernels compute them (from the Cephes library)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from armature.backend_api import Builder, Node, NotSupported, TensorValue, lowers
from armature_aten_lowerings.bessel import polynomial

aten = torch.ops.aten
FAR = 10  # from here on the asymptotic series is exact enough
ASYMPTOTIC = (
    8.33333333333333333333e-2, -2.10927960927960927961e-2, 7.57575757575757575758e-3, -4.16666666666666666667e-3,
    3.96825396825396825397e-3, -8.33333333333333333333e-3, 8.33333333333333333333e-2,
)  # fmt: skip
STEPS_OF_SECOND = 6  # by which the second derivative's argument is moved before its series


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


def _pointwise(b: Builder, function: Callable[[Builder, Node], Node], x: TensorValue) -> TensorValue:
    return b.pointwise(lambda value: function(b, value), x, dtype=b.spec().dtype)


@lowers(aten.digamma.default)
def digamma(b: Builder, x: TensorValue) -> TensorValue:
    return _pointwise(b, first, x)


@lowers(aten.polygamma.default)
def polygamma(b: Builder, n: int, x: TensorValue) -> TensorValue:
    if n > 1:
        raise NotSupported("a derivative above the second")
    return _pointwise(b, second if n else first, x)
