"""Losses and their gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch

from armature.backend_api import (
    Builder,
    Index,
    Node,
    NotSupported,
    TensorValue,
    compute_dtype,
    index,
    layout,
    lowers,
)
from armature_aten_lowerings.activations import Formula

aten = torch.ops.aten
Maybe = TensorValue | None
NONE, MEAN, SUM = 0, 1, 2  # torch's at::Reduction


def _mean_or_sum(
    b: Builder,
    element: Callable[[tuple[Index, ...]], Node],
    shape: tuple[Index, ...],
    like: TensorValue,
    reduction: int,
) -> TensorValue:
    """A single number: `element(position)` summed over `shape`, divided by the count for MEAN."""
    dtype = compute_dtype(like.dtype)
    count = index.numel(shape)

    def finish(total: Node) -> Node:
        return b.op("div", total, b.number(count, dtype)) if reduction == MEAN else total

    whole = layout.expand(like, shape)
    return b.reduction(
        "sum", whole, (), dtype=dtype, finish=finish, prepare=lambda _, p: element(p)
    )  # fmt: skip


@lowers(aten.mse_loss.default)
def mse_loss(b: Builder, x: TensorValue, y: TensorValue, reduction: int = MEAN) -> TensorValue:
    dtype = compute_dtype(b.spec().dtype)

    def element(p: tuple[Index, ...]) -> Node:
        gap = b.op("sub", b.read(x, p, dtype), b.read(y, p, dtype))
        return b.op("mul", gap, gap)

    if reduction == NONE:
        return b.loop(element)
    return _mean_or_sum(b, element, layout.broadcast_shape(x.shape, y.shape), x, reduction)


@lowers(aten.mse_loss_backward.default)
def mse_loss_backward(b: Builder, grad: TensorValue, x: TensorValue, y: TensorValue, reduction: int) -> TensorValue:
    dtype = compute_dtype(b.spec().dtype)
    count = index.numel(x.shape)
    if not isinstance(count, int):
        raise NotSupported("a mean over a symbolic size", "changing")
    factor = 2 / count if reduction == MEAN else 2.0

    def compute(g: Node, p: Node, q: Node) -> Node:
        return b.op("mul", b.op("mul", b.op("sub", p, q), g), b.const(factor, dtype))

    return b.pointwise(compute, grad, x, y, dtype=dtype)


@lowers(aten.binary_cross_entropy_with_logits.default)
def bce_with_logits(
    b: Builder, x: TensorValue, y: TensorValue, weight: Maybe = None, pos_weight: Maybe = None, reduction: int = MEAN
) -> TensorValue:
    dtype = compute_dtype(b.spec().dtype)
    f = Formula(b)

    def element(p: tuple[Index, ...]) -> Node:
        v, target = b.read(x, p, dtype), b.read(y, p, dtype)
        log1p = f.log1p(f.exp(f.neg(f.abs(v))))
        # log(1 + exp(-v)) without overflow
        soft = f.add(log1p, f.maximum(f.neg(v), 0))
        if pos_weight is not None:
            scale = f.add(f.mul(f.sub(b.read(pos_weight, p, dtype), 1), target), 1)
            soft = f.mul(soft, scale)
        loss = f.add(f.mul(f.sub(1, target), v), soft)
        return loss if weight is None else f.mul(loss, b.read(weight, p, dtype))

    if reduction == NONE:
        return b.loop(element)
    return _mean_or_sum(b, element, x.shape, x, reduction)


def _chosen(b: Builder, target: TensorValue, where: tuple[Index, ...], ignore: int) -> tuple[Node, Node]:
    """The class at a position, 0 if it is ignored, and whether it counts."""
    label = b.cast(b.load(target, where), torch.int64)
    counts = b.op("ne", label, b.const(ignore, torch.int64))
    return b.where(counts, label, b.const(0, torch.int64)), counts


@lowers(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss_forward(
    b: Builder, x: TensorValue, target: TensorValue, weight: Maybe, reduction: int, ignore: int
) -> tuple[TensorValue, TensorValue]:
    """The loss of scores [N, C, ...] or [C] for targets, and the total weight by which a mean divides."""
    if x.ndim == 1:
        x, target = layout.unsqueeze(x, 0), layout.unsqueeze(target, 0) if target.ndim == 0 else target
    dtype = compute_dtype(x.dtype)
    zero = b.const(0, dtype)

    def weight_at(p: tuple[Index, ...]) -> Node:
        label, counts = _chosen(b, target, p, ignore)
        if weight is None:
            return b.where(counts, b.const(1, dtype), zero)
        var, at = b.indirect(0, weight.shape[0], label)
        return b.where(counts, b.cast(b.load(weight, (var,), [(var, at)]), dtype), zero)

    def loss_at(p: tuple[Index, ...]) -> Node:
        label, counts = _chosen(b, target, p, ignore)
        var, at = b.indirect(0, x.shape[1], label)
        picked = b.load(x, (p[0], var, *p[1:]), [(var, at)])
        loss = b.op("neg", b.cast(picked, dtype))
        if weight is not None:
            loss = b.op("mul", loss, weight_at(p))
        return b.where(counts, loss, zero)

    if reduction == NONE:
        out = b.loop(lambda p: loss_at(p if b.spec().shape else (0,)))
        return out, b.loop(lambda p: b.const(0, b.spec(1).dtype), b.spec(1))
    total = b.reduction(
        "sum", target, (), dtype=torch.int64, prepare=lambda _, p: weight_at(p), spec=b.spec(1)
    )  # fmt: skip

    def finish(loss: Node) -> Node:
        return b.op("div", loss, b.read(total, (), dtype)) if reduction == MEAN else loss

    loss = b.reduction("sum", target, (), prepare=lambda _, p: loss_at(p), finish=finish, spec=b.spec(0))
    return loss, total


@lowers(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(
    b: Builder,
    grad: TensorValue,
    x: TensorValue,
    target: TensorValue,
    weight: Maybe,
    reduction: int,
    ignore: int,
    total_weight: TensorValue,
) -> TensorValue:
    """The gradient of the scores: minus the weight at each target, scaled by the gradient of the loss."""
    dtype = compute_dtype(x.dtype)
    channel = 1 if x.ndim > 1 else 0

    def element(p: tuple[Index, ...]) -> Node:
        where = (*p[:channel], *p[channel + 1 :])
        label = b.cast(b.load(target, where[: target.ndim]), torch.int64)
        hit = b.op("eq", label, b.index_value(p[channel]))
        counts = b.op("logical_and", hit, b.op("ne", label, b.const(ignore, torch.int64)))
        value = b.op("neg", b.read(grad, where if reduction == NONE and grad.ndim else (), dtype))
        if weight is not None:
            value = b.op("mul", value, b.cast(b.load(weight, (p[channel],)), dtype))
        if reduction == MEAN:
            value = b.op("div", value, b.read(total_weight, (), dtype))
        return b.where(counts, value, b.const(0, dtype))

    return b.loop(element)
