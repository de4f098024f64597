"""Softmax, log-softmax, and their gradients: loops that scheduling fuses into one kernel of a few passes."""

from __future__ import annotations

import torch

from armature.backend_api import (
    Builder,
    Index,
    Node,
    TensorValue,
    compute_dtype,
    lowers,
)
from armature_aten_lowerings.reductions import axes_of, keepdim_spec

aten = torch.ops.aten


def _largest(b: Builder, x: TensorValue, dims: list[int], dtype: torch.dtype) -> TensorValue:
    return b.reduction("max", x, dims, keepdim=True, dtype=dtype, spec=keepdim_spec(b, x, dims, dtype))


def _shifted_sum(b: Builder, x: TensorValue, largest: TensorValue, dims: list[int], dtype: torch.dtype) -> TensorValue:
    """Sum of `exp(x - largest)`."""

    def prepare(value: Node, position: tuple[Index, ...]) -> Node:
        return b.op("exp", b.op("sub", value, b.read(largest, position)))

    return b.reduction("sum", x, dims, keepdim=True, dtype=dtype, prepare=prepare, spec=keepdim_spec(b, x, dims, dtype))


@lowers(aten._softmax.default)
def softmax(b: Builder, x: TensorValue, dim: int, half_to_float: bool) -> TensorValue:
    dims, dtype = axes_of(x, dim), compute_dtype(b.spec().dtype)
    largest = _largest(b, x, dims, dtype)
    total = _shifted_sum(b, x, largest, dims, dtype)
    return b.pointwise(lambda v, m, s: b.op("div", b.op("exp", b.op("sub", v, m)), s), x, largest, total, dtype=dtype)


@lowers(aten._log_softmax.default)
def log_softmax(b: Builder, x: TensorValue, dim: int, half_to_float: bool) -> TensorValue:
    dims, dtype = axes_of(x, dim), compute_dtype(b.spec().dtype)
    largest = _largest(b, x, dims, dtype)
    total = _shifted_sum(b, x, largest, dims, dtype)
    return b.pointwise(lambda v, m, s: b.op("sub", b.op("sub", v, m), b.op("log", s)), x, largest, total, dtype=dtype)


@lowers(aten._softmax_backward_data.default)
def softmax_backward(b: Builder, grad: TensorValue, y: TensorValue, dim: int, input_dtype: torch.dtype) -> TensorValue:
    dims, dtype = axes_of(y, dim), compute_dtype(grad.dtype)

    def product(g: Node, position: tuple[Index, ...]) -> Node:
        return b.op("mul", g, b.read(y, position, dtype))

    total = b.reduction(
        "sum", grad, dims, keepdim=True, dtype=dtype, prepare=product, spec=keepdim_spec(b, grad, dims, dtype)
    )
    return b.pointwise(lambda g, v, s: b.op("mul", v, b.op("sub", g, s)), grad, y, total, dtype=dtype)


@lowers(aten._log_softmax_backward_data.default)
def log_softmax_backward(
    b: Builder, grad: TensorValue, y: TensorValue, dim: int, input_dtype: torch.dtype
) -> TensorValue:
    dims, dtype = axes_of(y, dim), compute_dtype(grad.dtype)
    total = b.reduction("sum", grad, dims, keepdim=True, dtype=dtype, spec=keepdim_spec(b, grad, dims, dtype))
    return b.pointwise(lambda g, v, s: b.op("sub", g, b.op("mul", b.op("exp", v), s)), grad, y, total, dtype=dtype)
