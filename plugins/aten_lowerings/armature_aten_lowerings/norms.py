"""Normalisations and their gradients, in loops over the groups and loops over the elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs
import torch

from armature.backend_api import (
    Builder,
    Index,
    Node,
    Spec,
    TensorValue,
    compute_dtype,
    index,
    layout,
    lowers,
)
from armature_aten_lowerings.reductions import count_of, keepdim_spec, mean_and_squares

aten = torch.ops.aten
Maybe = TensorValue | None
RUN = 64  # numbers in a row that use whole vectors


@attrs.frozen
class Affine:
    """Scale and shift of a normalisation, broadcast over the input; None if missing."""

    weight: Maybe
    bias: Maybe

    def apply(self, b: Builder, value: Node, position: tuple[Index, ...]) -> Node:
        """`value * weight + bias` for the element at `position`."""
        if self.weight is not None:
            value = b.op("mul", value, b.read(self.weight, position, value.dtype))
        return value if self.bias is None else b.op("add", value, b.read(self.bias, position, value.dtype))

    def element(self, b: Builder, x: TensorValue, dtype: torch.dtype, position: tuple[Index, ...]) -> Node:
        """`x * weight + bias` for the element at `position`."""
        return self.apply(b, b.read(x, position, dtype), position)


def inverse_root(b: Builder, squares: TensorValue, count: Index, eps: float) -> TensorValue:
    """`1 / sqrt(squares / count + eps)`."""

    def compute(total: Node) -> Node:
        variance = b.op("div", total, b.number(count, total.dtype))
        return b.op("rsqrt", b.op("add", variance, b.const(eps, total.dtype)))

    return b.pointwise(compute, squares, spec=squares.spec)


def normalized(b: Builder, x: TensorValue, mean: TensorValue, rstd: TensorValue, affine: Affine) -> TensorValue:
    """`(x - mean) * rstd * weight + bias` in the layout of the first result."""
    dtype = compute_dtype(x.dtype)

    def element(p: tuple[Index, ...]) -> Node:
        value = b.op("sub", b.read(x, p, dtype), b.read(mean, p, dtype))
        return affine.apply(b, b.op("mul", value, b.read(rstd, p, dtype)), p)

    return b.loop(element)


def as_result(b: Builder, value: TensorValue, position: int, shape: Sequence[Index] | None = None) -> TensorValue:
    """Convert a statistic to the layout and dtype of result number `position`, if it does not have them already."""
    spec = b.spec(position)
    value = layout.reshape(value, spec.shape)
    if value.dtype == spec.dtype and b.is_whole(value):
        return value
    return b.loop(lambda p: b.load(value, p), spec)


@lowers(aten.native_layer_norm.default)
def layer_norm(
    b: Builder, x: TensorValue, shape: Sequence[Index], weight: Maybe, bias: Maybe, eps: float
) -> tuple[TensorValue, ...]:
    dims = list(range(x.ndim - len(shape), x.ndim))
    mean, squares = mean_and_squares(b, x, dims)
    rstd = inverse_root(b, squares, count_of(x, dims), eps)
    out = normalized(b, x, mean, rstd, Affine(weight, bias))
    return out, as_result(b, mean, 1), as_result(b, rstd, 2)


@lowers(aten.native_layer_norm_backward.default)
def layer_norm_backward(
    b: Builder,
    grad: TensorValue,
    x: TensorValue,
    shape: Sequence[Index],
    mean: TensorValue,
    rstd: TensorValue,
    weight: Maybe,
    bias: Maybe,
    output_mask: Sequence[bool],
) -> tuple[Maybe, ...]:
    """Gradients of input, weight and bias, None where the mask is False."""
    inner = list(range(x.ndim - len(shape), x.ndim))
    outer = list(range(x.ndim - len(shape)))
    dtype = compute_dtype(x.dtype)

    def hat(p: tuple[Index, ...]) -> Node:
        return b.op("mul", b.op("sub", b.read(x, p, dtype), b.read(mean, p, dtype)), b.read(rstd, p, dtype))

    grads: list[Maybe] = [None, None, None]
    if output_mask[0]:
        grads[0] = _input_gradient(b, grad, x, weight, rstd, inner, hat)
    if output_mask[1] and weight is not None:
        grads[1] = _over(b, grad, outer, b.spec(1), lambda g, p: b.op("mul", g, hat(p)))
    if output_mask[2] and bias is not None:
        grads[2] = _over(b, grad, outer, b.spec(2), None)
    return tuple(grads)


def _over(
    b: Builder,
    grad: TensorValue,
    dims: list[int],
    spec: Spec,
    prepare: Callable[[Node, tuple[Index, ...]], Node] | None,
) -> TensorValue:
    """Sum of the gradient, transformed by `prepare`, over the axes; nothing is summed without axes."""
    if not dims:
        dtype = compute_dtype(grad.dtype)
        own = prepare or (lambda g, _: g)
        return b.loop(lambda p: own(b.read(grad, p, dtype), p), spec)
    return b.reduction("sum", grad, dims, dtype=compute_dtype(grad.dtype), prepare=prepare, spec=spec)


def _input_gradient(
    b: Builder,
    grad: TensorValue,
    x: TensorValue,
    weight: Maybe,
    rstd: TensorValue,
    dims: list[int],
    hat: Callable[[tuple[Index, ...]], Node],
) -> TensorValue:
    """`rstd * (g*w - mean(g*w) - x^ * mean(g*w*x^))`, means over `dims`."""
    dtype = compute_dtype(x.dtype)
    count = count_of(x, dims)
    spec = keepdim_spec(b, x, dims, dtype)

    def scaled(g: Node, p: tuple[Index, ...]) -> Node:
        return g if weight is None else b.op("mul", g, b.read(weight, p, dtype))

    def with_hat(g: Node, p: tuple[Index, ...]) -> Node:
        return b.op("mul", scaled(g, p), hat(p))

    total = b.reduction("sum", grad, dims, keepdim=True, dtype=dtype, prepare=scaled, spec=spec)
    dot = b.reduction("sum", grad, dims, keepdim=True, dtype=dtype, prepare=with_hat, spec=spec)

    def element(p: tuple[Index, ...]) -> Node:
        n = b.number(count, dtype)
        value = b.op("sub", scaled(b.read(grad, p, dtype), p), b.op("div", b.read(total, p), n))
        # Dividing `dot` first takes one division for the whole row; dividing the product takes one for each element.
        value = b.op("sub", value, b.op("mul", hat(p), b.op("div", b.read(dot, p), n)))
        return b.op("mul", value, b.read(rstd, p, dtype))

    return b.loop(element, b.spec(0))


# Batch norm: statistics over all axes but the second.


def per_channel(value: TensorValue, rank: int) -> TensorValue:
    """A vector over channels, broadcast to (N, C, ...)."""
    return layout.reshape(value, (1, value.shape[0], *([1] * (rank - 2))))


def maybe_per_channel(value: Maybe, rank: int) -> Maybe:
    """The same, with None unchanged."""
    return None if value is None else per_channel(value, rank)


@lowers(aten.native_batch_norm.default)
def batch_norm(
    b: Builder,
    x: TensorValue,
    weight: Maybe,
    bias: Maybe,
    running_mean: TensorValue,
    running_var: TensorValue,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorValue, ...] | None:
    """In inference only: in training it writes to the running statistics."""
    return None if training else batch_norm_of_inference(b, x, weight, bias, running_mean, running_var, momentum, eps)


@lowers(aten._native_batch_norm_legit.no_stats)
def batch_norm_without_statistics(
    b: Builder, x: TensorValue, weight: Maybe, bias: Maybe, training: bool, momentum: float, eps: float
) -> tuple[TensorValue, ...] | None:
    return _training(b, x, weight, bias, None, None, momentum, eps) if training else None


@lowers(aten._native_batch_norm_legit_functional.default)
def batch_norm_with_new_statistics(
    b: Builder,
    x: TensorValue,
    weight: Maybe,
    bias: Maybe,
    running_mean: TensorValue,
    running_var: TensorValue,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorValue, ...] | None:
    if training:
        return _training(b, x, weight, bias, running_mean, running_var, momentum, eps)
    out = batch_norm_of_inference(b, x, weight, bias, running_mean, running_var, momentum, eps)
    return (*out, running_mean, running_var)


@lowers(aten._native_batch_norm_legit_no_training.default)
def batch_norm_of_inference(
    b: Builder,
    x: TensorValue,
    weight: Maybe,
    bias: Maybe,
    running_mean: TensorValue,
    running_var: TensorValue,
    momentum: float,
    eps: float,
) -> tuple[TensorValue, ...]:
    """`(x - mean) / sqrt(variance + eps) * weight + bias` with the running statistics, and the saved statistics."""
    dtype = compute_dtype(x.dtype)
    mean, variance = per_channel(running_mean, x.ndim), per_channel(running_var, x.ndim)
    affine = Affine(maybe_per_channel(weight, x.ndim), maybe_per_channel(bias, x.ndim))

    def inverse(p: tuple[Index, ...], of: TensorValue = variance) -> Node:
        return b.op("rsqrt", b.op("add", b.read(of, p, dtype), b.const(eps, dtype)))

    def factor(p: tuple[Index, ...]) -> Node:
        return Affine(affine.weight, None).apply(b, inverse(p), p)

    def element(p: tuple[Index, ...]) -> Node:
        value = b.op("mul", b.op("sub", b.read(x, p, dtype), b.read(mean, p, dtype)), factor(p))
        return Affine(None, affine.bias).apply(b, value, p)

    if x.device.type == "cpu":
        # As in eager mode, one factor and one summand are computed for each channel. A GPU recomputes them at each
        # element, because it waits for memory anyway.
        spec = Spec(mean.shape, dtype, x.device, index.contiguous_strides(mean.shape))
        scale = b.loop(factor, spec)
        shift = b.loop(partial(_shift, b, mean, scale, affine.bias), spec)
        out = b.loop(partial(Affine(scale, shift).element, b, x, dtype))
    else:
        out = b.loop(element)
    return out, _saved(b, 1, lambda p: b.read(running_mean, p, dtype)), _saved(b, 2, partial(inverse, of=running_var))


def _shift(b: Builder, mean: TensorValue, scale: TensorValue, bias: Maybe, position: tuple[Index, ...]) -> Node:
    """`bias - mean * scale`."""
    product = b.op("mul", b.read(mean, position, scale.dtype), b.read(scale, position, scale.dtype))
    if bias is None:
        return b.op("neg", product)
    return b.op("sub", b.read(bias, position, scale.dtype), product)


def _saved(b: Builder, position: int, element: Callable[[tuple[Index, ...]], Node]) -> TensorValue:
    """A statistic for each channel, in the result's dtype; on the CPU eager mode saves none in inference."""
    spec = b.spec(position)
    if spec.shape == (0,):
        return b.whole(b.new_buffer(spec))
    return b.loop(lambda p: b.cast(element(p), spec.dtype), spec)


def _training(
    b: Builder,
    x: TensorValue,
    weight: Maybe,
    bias: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    momentum: float,
    eps: float,
) -> tuple[TensorValue, ...] | None:
    dims = [k for k in range(x.ndim) if k != 1]
    count = count_of(x, dims)
    if not isinstance(count, int):
        return None
    mean, squares = mean_and_squares(b, x, dims)
    rstd = inverse_root(b, squares, count, eps)
    affine = Affine(maybe_per_channel(weight, x.ndim), maybe_per_channel(bias, x.ndim))
    results = [normalized(b, x, mean, rstd, affine), as_result(b, mean, 1), as_result(b, rstd, 2)]
    if running_mean is not None and running_var is not None:
        flat = [layout.reshape(v, running_mean.shape) for v in (mean, squares)]
        results.append(_moved(b, running_mean, flat[0], momentum, 1.0, 3))
        results.append(_moved(b, running_var, flat[1], momentum, max(count - 1, 0), 4))
    return tuple(results)


def _moved(
    b: Builder, running: TensorValue, new: TensorValue, momentum: float, divisor: float, position: int
) -> TensorValue:
    """`momentum * new / divisor + (1 - momentum) * running`."""

    def compute(fresh: Node, old: Node) -> Node:
        if divisor != 1:
            fresh = b.op("div", fresh, b.const(divisor, fresh.dtype))
        kept = b.op("mul", old, b.const(1 - momentum, old.dtype))
        return b.op("add", b.op("mul", fresh, b.const(momentum, fresh.dtype)), kept)

    return b.pointwise(compute, new, running, dtype=compute_dtype(running.dtype), spec=b.spec(position))


@lowers(aten.native_batch_norm_backward.default)
def batch_norm_backward(
    b: Builder,
    grad: TensorValue,
    x: TensorValue,
    weight: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    saved_mean: Maybe,
    saved_rstd: Maybe,
    training: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Maybe, ...] | None:
    """Gradients of input, weight and bias, None where the mask is False."""
    dims = [k for k in range(x.ndim) if k != 1]
    dtype = compute_dtype(x.dtype)
    found = _statistics(b, x, running_mean, running_var, saved_mean, saved_rstd, training, eps)
    if found is None:
        return None
    mean, rstd = found
    wide = maybe_per_channel(weight, x.ndim)

    def hat(p: tuple[Index, ...]) -> Node:
        return b.op("mul", b.op("sub", b.read(x, p, dtype), b.read(mean, p, dtype)), b.read(rstd, p, dtype))

    def plain(p: tuple[Index, ...]) -> Node:
        value = b.op("mul", b.read(grad, p, dtype), b.read(rstd, p, dtype))
        return value if wide is None else b.op("mul", value, b.read(wide, p, dtype))

    grads: list[Maybe] = [None, None, None]
    if output_mask[0]:
        grads[0] = _input_gradient(b, grad, x, wide, rstd, dims, hat) if training else b.loop(plain, b.spec(0))
    if output_mask[1]:
        grads[1] = _over(b, grad, dims, b.spec(1), lambda g, p: b.op("mul", g, hat(p)))
    if output_mask[2]:
        grads[2] = _over(b, grad, dims, b.spec(2), None)
    return tuple(grads)


def _statistics(
    b: Builder,
    x: TensorValue,
    running_mean: Maybe,
    running_var: Maybe,
    saved_mean: Maybe,
    saved_rstd: Maybe,
    training: bool,
    eps: float,
) -> tuple[TensorValue, TensorValue] | None:
    """Mean and inverse root of the variance, broadcast over the input; None if they are not given."""
    if training:
        if saved_mean is None or saved_rstd is None:
            return None
        return per_channel(saved_mean, x.ndim), per_channel(saved_rstd, x.ndim)
    if running_mean is None or running_var is None:
        return None
    dtype = compute_dtype(running_var.dtype)
    spec = Spec.dense(running_var.shape, dtype, x.device)
    rstd = b.pointwise(
        lambda v: b.op("rsqrt", b.op("add", v, b.const(eps, dtype))), running_var, dtype=dtype, spec=spec
    )
    return per_channel(running_mean, x.ndim), per_channel(rstd, x.ndim)


@lowers(aten.native_group_norm.default)
def group_norm(
    b: Builder,
    x: TensorValue,
    weight: Maybe,
    bias: Maybe,
    batch: Index,
    channels: Index,
    inner: Index,
    groups: int,
    eps: float,
) -> tuple[TensorValue, ...] | None:
    """The normalised input, and mean and reciprocal deviation [batch, groups]; None for symbolic channels."""
    if not isinstance(channels, int) or not isinstance(inner, int):
        return None
    per_group = channels // groups
    affine = Affine(maybe_per_channel(weight, x.ndim), maybe_per_channel(bias, x.ndim))
    if x.strides[1] == 1 and 1 < per_group < RUN and x.device.type == "cpu":
        return _group_norm_by_channels(b, x, affine, groups, per_group * inner, eps)
    grouped = layout.reshape(x, (batch, groups, per_group * inner))
    mean, squares = mean_and_squares(b, grouped, [2])
    rstd = inverse_root(b, squares, per_group * inner, eps)
    dtype = compute_dtype(x.dtype)

    def element(p: tuple[Index, ...]) -> Node:
        group = (p[0], index.floordiv(p[1], per_group), 0)
        value = b.op("sub", b.read(x, p, dtype), b.cast(b.load(mean, group), dtype))
        return affine.apply(b, b.op("mul", value, b.cast(b.load(rstd, group), dtype)), p)

    return b.loop(element), as_result(b, mean, 1), as_result(b, rstd, 2)


def _group_norm_by_channels(
    b: Builder, x: TensorValue, affine: Affine, groups: int, count: int, eps: float
) -> tuple[TensorValue, ...]:
    """With channels last a group consists of short runs of memory. So sums are first computed for each channel, and a
    group's statistics are stored for each of its channels, for the loop over the elements."""
    batch, channels, *pixels = x.shape
    dtype = compute_dtype(x.dtype)
    by_group = Spec.dense((batch, groups, 1), dtype, x.device)
    by_channel = Spec.dense((batch, channels), dtype, x.device)
    per_group = index.floordiv(channels, groups)

    def of_groups(element: Callable[[tuple[Index, ...]], Node]) -> TensorValue:
        """The mean over each group of an element of `x`."""
        sums = b.loop(lambda p: b.reduce_over("sum", pixels, lambda pixel: element((*p, *pixel))), by_channel)

        def total(p: tuple[Index, ...]) -> Node:
            return b.reduce_over(
                "sum", (per_group,), lambda k: b.load(sums, (p[0], index.add(index.mul(p[1], per_group), k[0])))
            )

        return b.loop(lambda p: b.op("div", total(p), b.const(count, dtype)), by_group)

    def of_channels(value: TensorValue) -> TensorValue:
        """The statistic of a channel's group."""
        return b.loop(lambda p: b.load(value, (p[0], index.floordiv(p[1], per_group), 0)), by_channel)

    mean = of_groups(lambda p: b.read(x, p, dtype))
    middle = of_channels(mean)

    def gap(p: tuple[Index, ...]) -> Node:
        return b.op("sub", b.read(x, p, dtype), b.load(middle, p[:2]))

    def squared(p: tuple[Index, ...]) -> Node:
        distance = gap(p)
        return b.op("mul", distance, distance)

    rstd = inverse_root(b, of_groups(squared), 1, eps)
    scale = of_channels(rstd)
    result = b.loop(lambda p: affine.apply(b, b.op("mul", gap(p), b.load(scale, p[:2])), p))
    return result, as_result(b, mean, 1), as_result(b, rstd, 2)
