"""Elementwise operators: tables of those that are one operation of the loop IR, and small functions for the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import attrs
import torch

from armature.backend_api import (
    Builder,
    Index,
    Node,
    NotSupported,
    Position,
    Scalar,
    ScalarValue,
    Spec,
    TensorValue,
    compute_dtype,
    index,
    layout,
    lowers,
)
from armature.plugin_api import Lowering
from armature_aten_lowerings.promotion import promoted

T = TypeVar("T")
aten = torch.ops.aten
Overload = torch._ops.OpOverload
Number = bool | int | float
Fn = Callable[..., TensorValue | None]

# One operation, on values of the result's dtype.
UNARY: Mapping[Overload, str] = {
    aten.neg.default: "neg", aten.abs.default: "abs", aten.sign.default: "sign", aten.sgn.default: "sign",
    aten.sqrt.default: "sqrt", aten.rsqrt.default: "rsqrt", aten.reciprocal.default: "reciprocal",
    aten.exp.default: "exp", aten.exp2.default: "exp2", aten.expm1.default: "expm1",
    aten.log.default: "log", aten.log2.default: "log2", aten.log10.default: "log10", aten.log1p.default: "log1p",
    aten.sigmoid.default: "sigmoid", aten.sin.default: "sin", aten.cos.default: "cos", aten.tan.default: "tan",
    aten.asin.default: "asin", aten.acos.default: "acos", aten.atan.default: "atan", aten.sinh.default: "sinh",
    aten.cosh.default: "cosh", aten.tanh.default: "tanh", aten.asinh.default: "asinh", aten.acosh.default: "acosh",
    aten.atanh.default: "atanh", aten.erf.default: "erf", aten.erfc.default: "erfc", aten.erfinv.default: "erfinv",
    aten.lgamma.default: "lgamma", aten.bitwise_not.default: "bit_not",
}  # fmt: skip

# Rounding does not change integers.
ROUNDING: Mapping[Overload, str] = {
    aten.floor.default: "floor", aten.ceil.default: "ceil", aten.trunc.default: "trunc", aten.round.default: "round",
}  # fmt: skip

BINARY: Mapping[Overload, str] = {
    aten.mul.Tensor: "mul", aten.mul.Scalar: "mul", aten.div.Tensor: "div", aten.div.Scalar: "div",
    aten.maximum.default: "maximum", aten.minimum.default: "minimum", aten.fmax.default: "fmax",
    aten.fmin.default: "fmin",
    aten.atan2.default: "atan2", aten.hypot.default: "hypot", aten.copysign.Tensor: "copysign",
    aten.copysign.Scalar: "copysign", aten.nextafter.default: "nextafter",
    aten.bitwise_and.Tensor: "bit_and", aten.bitwise_and.Scalar: "bit_and",
    aten.bitwise_or.Tensor: "bit_or", aten.bitwise_or.Scalar: "bit_or",
    aten.bitwise_xor.Tensor: "bit_xor", aten.bitwise_xor.Scalar: "bit_xor",
}  # fmt: skip

# Arguments are promoted to a common dtype; the result is bool.
COMPARISON: Mapping[Overload, str] = {
    aten.eq.Tensor: "eq", aten.eq.Scalar: "eq", aten.ne.Tensor: "ne", aten.ne.Scalar: "ne",
    aten.lt.Tensor: "lt", aten.lt.Scalar: "lt", aten.le.Tensor: "le", aten.le.Scalar: "le",
    aten.gt.Tensor: "gt", aten.gt.Scalar: "gt", aten.ge.Tensor: "ge", aten.ge.Scalar: "ge",
}  # fmt: skip

LOGICAL: Mapping[Overload, str] = {
    aten.logical_and.default: "logical_and", aten.logical_or.default: "logical_or",
    aten.logical_xor.default: "logical_xor", aten.logical_not.default: "logical_not",
}  # fmt: skip

OF_BITS = frozenset({"bit_and", "bit_or", "bit_xor", "bit_not"})

# The equivalent operation on bools.
ON_BOOLS: Mapping[str, str] = {
    "add": "logical_or", "mul": "logical_and", "maximum": "logical_or", "minimum": "logical_and",
    "bit_and": "logical_and", "bit_or": "logical_or", "bit_xor": "logical_xor", "bit_not": "logical_not",
    "fmax": "logical_or", "fmin": "logical_and",
}  # fmt: skip


def in_result_dtype(name: str) -> Fn:
    """The lowering of an operator that is the operation `name` on values of the result's dtype."""

    def lowering(b: Builder, *values: TensorValue | Scalar) -> TensorValue:
        dtype = b.spec().dtype
        if name in OF_BITS and (dtype.is_floating_point or dtype.is_complex):
            raise NotSupported(f"{name} of {dtype}, for which torch has no kernel either")
        op = ON_BOOLS.get(name, name) if dtype == torch.bool else name
        if dtype == torch.bool and op == name:
            raise NotSupported(f"{name} of bools")
        return b.pointwise(op, *values, dtype=dtype)

    return lowering


def rounding(name: str) -> Fn:
    """The lowering of an operator that does not change integers."""

    def lowering(b: Builder, x: TensorValue) -> TensorValue:
        dtype = b.spec().dtype
        return b.pointwise(name if dtype.is_floating_point else lambda v: v, x, dtype=dtype)

    return lowering


def as_element(x: TensorValue | Spec, y: T) -> T | ScalarValue | float:
    """A number rounded to the 16 bits of a tensor's elements, as eager's kernels do where the last bit matters. Loops
    compute in float32, where no 16-bit element equals 0.1."""
    if x.dtype.itemsize != 2 or not x.dtype.is_floating_point:
        return y
    if isinstance(y, ScalarValue):
        return attrs.evolve(y, rounded=x.dtype)
    return float(torch.tensor(y, dtype=torch.float64).to(x.dtype)) if isinstance(y, (int, float)) else y


def as_factor(b: Builder, y: T) -> T | ScalarValue | float:
    """A factor such as `alpha`, or an exponent: eager's CPU kernels round it to the result's dtype, its GPU kernels do
    not."""
    return as_element(b.spec(), y) if b.spec().device.type == "cpu" else y


def as_addend(b: Builder, y: T) -> T | TensorValue | ScalarValue | float:
    """A number, or one-element tensor, that is added, or the base of a power: rounded like `as_factor`."""
    result = b.spec()
    if isinstance(y, TensorValue) and y.ndim == 0 and y.dtype.itemsize > result.dtype.itemsize == 2:
        halved = result.dtype.is_floating_point and result.device.type == "cpu"
        single = Spec.dense((), result.dtype, result.device)
        return b.pointwise(lambda v: v, y, dtype=torch.float32, spec=single) if halved else y
    return as_factor(b, y)


def comparison(name: str) -> Fn:
    """The lowering of a comparison."""

    def lowering(b: Builder, x: TensorValue, y: TensorValue | Scalar) -> TensorValue:
        dtype = promoted(x, y)
        if dtype == torch.bool and name in ("eq", "ne"):
            negate = "logical_not" if name == "eq" else ""
            different = b.pointwise(lambda p, q: _maybe(b, negate, b.op("logical_xor", p, q)), x, y, dtype=dtype)
            return different
        wanted = torch.int32 if dtype == torch.bool else dtype
        return b.pointwise(name, x, as_element(x, y), dtype=wanted)

    return lowering


def _maybe(b: Builder, op: str, value: Node) -> Node:
    return b.op(op, value) if op else value


def logical(name: str) -> Fn:
    """The lowering of a logical operator: arguments are first converted to bool."""
    return lambda b, *values: b.pointwise(name, *values, dtype=torch.bool)


LOWERINGS = [
    *(Lowering(op, in_result_dtype(name)) for table in (UNARY, BINARY) for op, name in table.items()),
    *(Lowering(op, rounding(name)) for op, name in ROUNDING.items()),
    *(Lowering(op, comparison(name)) for op, name in COMPARISON.items()),
    *(Lowering(op, logical(name)) for op, name in LOGICAL.items()),
]


def scaled(b: Builder, value: Node, factor: Scalar) -> Node:
    """`value * factor`, or the value for a factor of 1."""
    return (
        value if isinstance(factor, (int, float)) and factor == 1 else b.op("mul", value, b.number(factor, value.dtype))
    )


@lowers(aten.add.Tensor, aten.add.Scalar)
def add(b: Builder, x: TensorValue, y: TensorValue | Scalar, alpha: Scalar = 1) -> TensorValue:
    dtype = b.spec().dtype
    if dtype == torch.bool:
        if not isinstance(alpha, (int, float)):
            raise NotSupported("a sum of bools, scaled by a symbolic number", "changing")
        return b.pointwise(lambda p, q: b.op("logical_or", p, q) if alpha else p, x, y, dtype=dtype)
    factor = as_factor(b, alpha)
    return b.pointwise(lambda p, q: b.op("add", p, scaled(b, q, factor)), as_addend(b, x), as_addend(b, y), dtype=dtype)


@lowers(aten.sub.Tensor, aten.sub.Scalar)
def sub(b: Builder, x: TensorValue, y: TensorValue | Scalar, alpha: Scalar = 1) -> TensorValue:
    factor = as_factor(b, alpha)
    return b.pointwise(
        lambda p, q: b.op("sub", p, scaled(b, q, factor)), as_addend(b, x), as_addend(b, y), dtype=b.spec().dtype
    )


@lowers(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(b: Builder, x: TensorValue, y: TensorValue | Scalar, alpha: Scalar = 1) -> TensorValue:
    factor = as_factor(b, alpha)
    return b.pointwise(
        lambda p, q: b.op("sub", q, scaled(b, p, factor)), as_addend(b, x), as_addend(b, y), dtype=b.spec().dtype
    )


def _divided(b: Builder, op: str, x: TensorValue, y: TensorValue | Scalar) -> TensorValue:
    """A rounded quotient or remainder. For integers, eager mode's kernel for the CPU raises for a divisor of zero, and
    so does the loop, as for an index out of range."""
    dtype = b.spec().dtype
    if dtype.is_floating_point or (isinstance(y, int) and y != 0) or x.device.type != "cpu":
        return b.pointwise(op, x, y, dtype=dtype)

    def checked(divisor: Node) -> Node:
        zero = b.op("eq", divisor, b.const(0, dtype))
        place = b.where(zero, b.const(-1, torch.int64), b.const(0, torch.int64))
        nothing = b.op("check_index", place, b.const(1, torch.int64))
        return b.op("add", divisor, b.cast(nothing, dtype))

    return b.pointwise(lambda p, q: b.op(op, p, checked(q)), x, y, dtype=dtype)


@lowers(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(b: Builder, x: TensorValue, y: TensorValue | Scalar, *, rounding_mode: str | None) -> TensorValue:
    if rounding_mode is None:
        return b.pointwise("div", x, y, dtype=b.spec().dtype)
    return _divided(b, "floordiv" if rounding_mode == "floor" else "truncdiv", x, y)


@lowers(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(b: Builder, x: TensorValue, y: TensorValue | Scalar) -> TensorValue:
    return _divided(b, "floordiv", x, y)


@lowers(aten.remainder.Tensor, aten.remainder.Scalar)
def remainder(b: Builder, x: TensorValue, y: TensorValue | Scalar) -> TensorValue:
    return _divided(b, "mod", x, as_element(x, y))


@lowers(aten.fmod.Tensor, aten.fmod.Scalar)
def fmod(b: Builder, x: TensorValue, y: TensorValue | Scalar) -> TensorValue:
    return _divided(b, "fmod", x, as_element(x, y))


def power(b: Builder, x: Node, exponent: float) -> Node:
    """`x ** exponent`, by multiplications and roots where these are equivalent."""
    if x.dtype.is_floating_point:
        short = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}.get(float(exponent))
        if short:
            return b.op(short, x)
    whole = int(exponent) if float(exponent).is_integer() else -1
    if whole in (0, 1):
        return b.const(1, x.dtype) if whole == 0 else x
    if 2 <= whole <= 4:
        square = b.op("mul", x, x)
        return square if whole == 2 else b.op("mul", square, x if whole == 3 else square)
    if not x.dtype.is_floating_point:
        raise NotSupported("a power of integers")
    return b.op("pow", x, b.const(exponent, x.dtype))


@lowers(aten.pow.Tensor_Scalar)
def pow_scalar(b: Builder, x: TensorValue, exponent: Number | ScalarValue) -> TensorValue:
    taken = as_factor(b, exponent)
    if isinstance(taken, ScalarValue):
        return pow_tensor(b, x, taken)
    return b.pointwise(lambda v: power(b, v, taken), x, dtype=b.spec().dtype)


@lowers(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def pow_tensor(b: Builder, x: TensorValue | Number | ScalarValue, y: TensorValue | ScalarValue) -> TensorValue:
    if not b.spec().dtype.is_floating_point:
        raise NotSupported("a power of integers")
    if isinstance(x, (int, float)) and x == 2:
        return b.pointwise("exp2", y, dtype=b.spec().dtype)
    return b.pointwise("pow", as_addend(b, x), y, dtype=b.spec().dtype)


@lowers(aten.isnan.default, aten.isinf.default, aten.signbit.default)
def classify(b: Builder, x: TensorValue) -> TensorValue:
    name = str(b.target).split(".")[1]
    if not x.dtype.is_floating_point:
        if name == "signbit":
            return b.pointwise("lt", x, 0, dtype=torch.int32 if x.dtype == torch.bool else x.dtype)
        return b.pointwise(lambda v: b.const(False, torch.bool), x)
    return b.pointwise(name, x, dtype=x.dtype)


@lowers(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def where(b: Builder, cond: TensorValue, x: TensorValue | Scalar, y: TensorValue | Scalar) -> TensorValue:
    dtype = b.spec().dtype
    return b.loop(lambda p: b.where(b.read(cond, p, torch.bool), _item(b, x, p, dtype), _item(b, y, p, dtype)))


def _item(b: Builder, value: TensorValue | Scalar, position: tuple[Index, ...], dtype: torch.dtype) -> Node:
    # A selection needs no wider dtype: 16-bit floats are not converted.
    return b.read(value, position, dtype) if isinstance(value, TensorValue) else b.number(value, dtype)


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(b: Builder, x: TensorValue, mask: TensorValue, value: TensorValue | Scalar) -> TensorValue:
    return where(b, mask, value, x)


@lowers(aten.clamp.default, aten.clamp.Tensor)
def clamp(
    b: Builder, x: TensorValue, low: TensorValue | Scalar | None = None, high: TensorValue | Scalar | None = None
) -> TensorValue:
    bounds = [(op, v) for op, v in (("maximum", low), ("minimum", high)) if v is not None]

    def compute(value: Node, *limits: Node) -> Node:
        for (op, _), limit in zip(bounds, limits, strict=True):
            value = b.op(op, value, limit)
        return value

    return b.pointwise(compute, x, *(v for _, v in bounds), dtype=b.spec().dtype)


@lowers(aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(b: Builder, x: TensorValue, low: TensorValue | Scalar) -> TensorValue:
    return clamp(b, x, low)


@lowers(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(b: Builder, x: TensorValue, high: TensorValue | Scalar) -> TensorValue:
    return clamp(b, x, None, high)


@lowers(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(b: Builder, start: TensorValue, end: TensorValue, weight: TensorValue | Scalar) -> TensorValue:
    def compute(s: Node, e: Node, w: Node) -> Node:
        # The formula changes at one half so that weight 1 gives exactly `end`.
        gap = b.op("sub", e, s)
        near = b.op("add", s, b.op("mul", w, gap))
        far = b.op("sub", e, b.op("mul", gap, b.op("sub", b.const(1, w.dtype), w)))
        return b.where(b.op("lt", b.op("abs", w), b.const(0.5, w.dtype)), near, far)

    return b.pointwise(compute, start, end, weight, dtype=b.spec().dtype)


@lowers(aten.addcmul.default)
def addcmul(b: Builder, x: TensorValue, p: TensorValue, q: TensorValue, *, value: Scalar = 1) -> TensorValue:
    return b.pointwise(
        lambda v, s, t: b.op("add", v, b.op("mul", scaled(b, s, value), t)), x, p, q, dtype=b.spec().dtype
    )


@lowers(aten.addcdiv.default)
def addcdiv(b: Builder, x: TensorValue, p: TensorValue, q: TensorValue, *, value: Scalar = 1) -> TensorValue:
    return b.pointwise(
        lambda v, s, t: b.op("add", v, b.op("div", scaled(b, s, value), t)), x, p, q, dtype=b.spec().dtype
    )


@lowers(aten.square.default)
def square(b: Builder, x: TensorValue) -> TensorValue:
    return b.pointwise(lambda v: b.op("mul", v, v), x, dtype=b.spec().dtype)


@lowers(aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar)
def shift_left(b: Builder, x: TensorValue, count: TensorValue | int) -> TensorValue:
    return b.pointwise("shift_left", x, count, dtype=b.spec().dtype)


@lowers(aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar)
def shift_right(b: Builder, x: TensorValue, count: TensorValue | int) -> TensorValue:
    return b.pointwise("shift_right", x, count, dtype=b.spec().dtype)


@lowers(aten.linalg_cross.default)
def cross(b: Builder, x: TensorValue, other: TensorValue, *, dim: int = -1) -> TensorValue | None:
    dim = layout.normal_axis(dim, x.ndim)
    if b.spec().dtype.is_complex:
        return None

    def element(p: Position) -> Node:
        def turned(value: TensorValue, by: int) -> Node:
            return b.read(value, (*p[:dim], index.mod(index.add(p[dim], by), 3), *p[dim + 1 :]))

        plus = b.op("mul", turned(x, 1), turned(other, 2))
        return b.op("sub", plus, b.op("mul", turned(x, 2), turned(other, 1)))

    return b.loop(element)


@lowers(aten.frexp.Tensor)
def frexp(b: Builder, x: TensorValue) -> tuple[TensorValue, TensorValue]:
    """The fraction in [0.5, 1) and the power of two, from the bits; of 0, infinity and NaN the number itself and 0."""
    kind = compute_dtype(x.dtype)
    whole, digits, top = (torch.int32, 23, 0xFF) if kind == torch.float32 else (torch.int64, 52, 0x7FF)
    half = (top >> 1) - 1  # the exponent field of 0.5
    moved = 2 * (digits // 2 + 1) + 2  # what makes the smallest numbers normal

    def fraction_and_power(value: Node) -> tuple[Node, Node]:
        size = b.op("abs", value)
        small = b.op("lt", size, b.const(torch.finfo(kind).tiny, kind))
        value = b.where(small, b.op("mul", value, b.const(float(2**moved), kind)), value)
        bits = b.op("bitcast", value, dtype=whole)
        field = b.op("bit_and", b.op("shift_right", bits, b.const(digits, whole)), b.const(top, whole))
        power = b.op("sub", field, b.where(small, b.const(half + moved, whole), b.const(half, whole)))
        rest = b.op("bit_and", bits, b.const(~(top << digits), whole))
        fraction = b.op("bitcast", b.op("bit_or", rest, b.const(half << digits, whole)), dtype=kind)
        plain = b.op("logical_and", b.op("gt", size, b.const(0, kind)), b.op("lt", size, b.const(math.inf, kind)))
        return b.where(plain, fraction, value), b.where(plain, power, b.const(0, whole))

    return b.pointwise(lambda v: fraction_and_power(v)[0], x), b.pointwise(
        lambda v: fraction_and_power(v)[1], x, spec=b.spec(1)
    )
