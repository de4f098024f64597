"""Activation functions and their gradients, each a formula over element values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import cast

import torch

from armature.backend_api import Builder, Node, Scalar, TensorValue, lowers
from armature.plugin_api import Lowering

aten = torch.ops.aten
Number = bool | int | float
RSQRT_2 = math.sqrt(0.5)
SQRT_2_PI = math.sqrt(2 / math.pi)
CUBE = 0.044715


class Formula:
    """Arithmetic on a mix of element values and Python numbers, to keep formulas readable."""

    def __init__(self, b: Builder) -> None:
        self.b = b

    def _both(self, x: Node | Scalar, y: Node | Scalar) -> tuple[Node, Node]:
        if not isinstance(x, Node):
            other = cast("Node", y)  # one of them is a node
            return self.b.number(x, other.dtype), other
        return x, y if isinstance(y, Node) else self.b.number(y, x.dtype)

    def __getattr__(self, name: str) -> Callable[..., Node]:
        op = name.rstrip("_")
        if op.startswith("__"):
            raise AttributeError(name)

        def apply(*args: Node | Scalar) -> Node:
            if len(args) == 2:
                args = self._both(*args)
            return self.b.op(op, *cast("tuple[Node, ...]", args))  # a number only occurs next to a node

        return apply

    def product(self, x: Scalar, y: Scalar, dtype: torch.dtype) -> Node | Scalar:
        """The product of two numbers."""
        if isinstance(x, (int, float)) and isinstance(y, (int, float)):
            return x * y
        return self.b.op("mul", self.b.number(x, dtype), self.b.number(y, dtype))

    def pick(self, cond: Node, x: Node | Scalar, y: Node | Scalar) -> Node:
        """`x` where `cond`, else `y`."""
        return self.b.where(cond, *self._both(x, y))


def relu(f: Formula, x: Node) -> Node:
    return f.maximum(x, 0)


def silu(f: Formula, x: Node) -> Node:
    return f.mul(x, f.sigmoid(x))


def silu_backward(f: Formula, g: Node, x: Node) -> Node:
    s = f.sigmoid(x)
    return f.mul(f.mul(g, s), f.add(1, f.mul(x, f.sub(1, s))))


def sigmoid_backward(f: Formula, g: Node, y: Node) -> Node:
    return f.mul(g, f.mul(f.sub(1, y), y))


def tanh_backward(f: Formula, g: Node, y: Node) -> Node:
    return f.mul(g, f.sub(1, f.mul(y, y)))


def hardsigmoid(f: Formula, x: Node) -> Node:
    return f.div(f.minimum(f.maximum(f.add(x, 3), 0), 6), 6)


def hardswish(f: Formula, x: Node) -> Node:
    return f.div(f.mul(x, f.minimum(f.maximum(f.add(x, 3), 0), 6)), 6)


def hardsigmoid_backward(f: Formula, g: Node, x: Node) -> Node:
    # 1/6 in float32 precision, even in float64, as in torch's kernels.
    return f.pick(f.logical_and(f.gt(x, -3), f.lt(x, 3)), f.mul(g, 0.1666666716337204), 0)


def hardswish_backward(f: Formula, g: Node, x: Node) -> Node:
    middle = f.mul(g, f.add(f.div(x, 3), 0.5))
    return f.pick(f.lt(x, -3), 0, f.pick(f.le(x, 3), middle, g))


FORMULAS: Mapping[torch._ops.OpOverload, Callable[..., Node]] = {
    aten.relu.default: relu,
    aten.silu.default: silu,
    aten.silu_backward.default: silu_backward,
    aten.sigmoid_backward.default: sigmoid_backward,
    aten.tanh_backward.default: tanh_backward,
    aten.hardsigmoid.default: hardsigmoid,
    aten.hardsigmoid_backward.default: hardsigmoid_backward,
    aten.hardswish.default: hardswish,
    aten.hardswish_backward.default: hardswish_backward,
}


def formula(compute: Callable[..., Node]) -> Callable[..., TensorValue]:
    """The lowering of an operator given by a formula on its tensors, computed in the result's dtype."""

    def lowering(b: Builder, *values: TensorValue) -> TensorValue:
        f = Formula(b)
        return b.pointwise(lambda *nodes: compute(f, *nodes), *values, dtype=b.spec().dtype)

    return lowering


LOWERINGS = [Lowering(op, formula(compute)) for op, compute in FORMULAS.items()]


@lowers(aten.gelu.default)
def gelu(b: Builder, x: TensorValue, *, approximate: str = "none") -> TensorValue:
    f = Formula(b)

    def exact(v: Node) -> Node:
        return f.mul(f.mul(v, 0.5), f.add(f.erf(f.mul(v, RSQRT_2)), 1))

    def by_tanh(v: Node) -> Node:
        inner = f.mul(f.add(v, f.mul(f.mul(f.mul(v, v), v), CUBE)), SQRT_2_PI)
        return f.mul(f.mul(v, 0.5), f.add(f.tanh(inner), 1))

    return b.pointwise(by_tanh if approximate == "tanh" else exact, x, dtype=b.spec().dtype)


@lowers(aten.gelu_backward.default)
def gelu_backward(b: Builder, grad: TensorValue, x: TensorValue, *, approximate: str = "none") -> TensorValue:
    f = Formula(b)

    def exact(g: Node, v: Node) -> Node:
        cdf = f.mul(f.add(f.erf(f.mul(v, RSQRT_2)), 1), 0.5)
        pdf = f.mul(f.exp(f.mul(f.mul(v, v), -0.5)), SQRT_2_PI / 2)
        return f.mul(g, f.add(cdf, f.mul(v, pdf)))

    def by_tanh(g: Node, v: Node) -> Node:
        square = f.mul(v, v)
        t = f.tanh(f.mul(f.add(v, f.mul(f.mul(square, v), CUBE)), SQRT_2_PI))
        slope = f.mul(f.add(f.mul(square, 3 * CUBE), 1), SQRT_2_PI * 2)
        left = f.mul(f.add(t, 1), 0.5)
        right = f.mul(f.mul(f.mul(v, left), f.sub(1, left)), slope)  # 1 - t * t is 4 * left * (1 - left)
        return f.mul(g, f.add(left, right))

    return b.pointwise(by_tanh if approximate == "tanh" else exact, grad, x, dtype=b.spec().dtype)


@lowers(aten.threshold_backward.default)
def threshold_backward(b: Builder, grad: TensorValue, x: TensorValue, threshold: Scalar) -> TensorValue:
    f = Formula(b)
    return b.pointwise(lambda g, v: f.pick(f.le(v, threshold), 0, g), grad, x, dtype=b.spec().dtype)


@lowers(aten.threshold.default)
def threshold(b: Builder, x: TensorValue, limit: Scalar, value: Scalar) -> TensorValue:
    f = Formula(b)
    return b.pointwise(lambda v: f.pick(f.le(v, limit), value, v), x, dtype=b.spec().dtype)


@lowers(aten.hardtanh.default)
def hardtanh(b: Builder, x: TensorValue, low: Scalar = -1, high: Scalar = 1) -> TensorValue:
    f = Formula(b)
    return b.pointwise(lambda v: f.minimum(f.maximum(v, low), high), x, dtype=b.spec().dtype)


@lowers(aten.hardtanh_backward.default)
def hardtanh_backward(b: Builder, grad: TensorValue, x: TensorValue, low: Scalar, high: Scalar) -> TensorValue:
    f = Formula(b)
    return b.pointwise(
        lambda g, v: f.pick(f.logical_or(f.le(v, low), f.ge(v, high)), 0, g), grad, x, dtype=b.spec().dtype
    )


@lowers(aten.leaky_relu.default)
def leaky_relu(b: Builder, x: TensorValue, slope: Scalar = 0.01) -> TensorValue:
    f = Formula(b)
    return b.pointwise(lambda v: f.pick(f.gt(v, 0), v, f.mul(v, slope)), x, dtype=b.spec().dtype)


@lowers(aten.leaky_relu_backward.default)
def leaky_relu_backward(
    b: Builder, grad: TensorValue, x: TensorValue, slope: Scalar, self_is_result: bool
) -> TensorValue:
    f = Formula(b)
    return b.pointwise(lambda g, v: f.pick(f.gt(v, 0), g, f.mul(g, slope)), grad, x, dtype=b.spec().dtype)


@lowers(aten.elu.default)
def elu(b: Builder, x: TensorValue, alpha: Scalar = 1, scale: Scalar = 1, input_scale: Scalar = 1) -> TensorValue:
    f = Formula(b)

    def compute(v: Node) -> Node:
        negative = f.mul(f.expm1(f.mul(v, input_scale)), f.product(alpha, scale, v.dtype))
        return f.pick(f.gt(v, 0), f.mul(v, scale), negative)

    return b.pointwise(compute, x, dtype=b.spec().dtype)


@lowers(aten.elu_backward.default)
def elu_backward(
    b: Builder,
    grad: TensorValue,
    alpha: Number,
    scale: Number,
    input_scale: Number,
    is_result: bool,
    x: TensorValue,
) -> TensorValue:
    f = Formula(b)
    negative = alpha * scale

    def compute(g: Node, v: Node) -> Node:
        if is_result:
            below = f.mul(f.mul(g, input_scale), f.add(v, negative))
        else:
            below = f.mul(f.mul(g, input_scale * negative), f.exp(f.mul(v, input_scale)))
        return f.pick(f.le(v, 0), below, f.mul(g, scale))

    return b.pointwise(compute, grad, x, dtype=b.spec().dtype)


@lowers(aten.softplus.default)
def softplus(b: Builder, x: TensorValue, beta: Scalar = 1, limit: Scalar = 20) -> TensorValue:
    f = Formula(b)

    def compute(v: Node) -> Node:
        scaled = f.mul(v, beta)
        return f.pick(f.gt(scaled, limit), v, f.div(f.log1p(f.exp(scaled)), beta))

    return b.pointwise(compute, x, dtype=b.spec().dtype)


@lowers(aten.softplus_backward.default)
def softplus_backward(b: Builder, grad: TensorValue, x: TensorValue, beta: Scalar, limit: Scalar) -> TensorValue:
    f = Formula(b)

    def compute(g: Node, v: Node) -> Node:
        scaled = f.mul(v, beta)
        z = f.exp(scaled)
        return f.pick(f.gt(scaled, limit), g, f.mul(g, f.div(z, f.add(z, 1))))

    return b.pointwise(compute, grad, x, dtype=b.spec().dtype)
