"""Reductions over axes: sums, extremes and their positions, variances in two passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from armature.backend_api import (
    Builder,
    Index,
    Node,
    NotSupported,
    Spec,
    TensorValue,
    compute_dtype,
    index,
    layout,
    lowers,
)

aten = torch.ops.aten
Fn = Callable[..., TensorValue | None]
Dims = Sequence[int] | None


def axes_of(x: TensorValue, dims: Dims | int) -> list[int]:
    """The reduced axes, sorted and not negative: all of them for None or an empty list."""
    if isinstance(dims, int):
        dims = [dims]
    return sorted({layout.normal_axis(d, x.ndim) for d in dims or range(x.ndim)}) if x.ndim else []


def count_of(x: TensorValue, dims: Sequence[int]) -> Index:
    """Number of elements that are combined into one."""
    return index.numel(x.shape[d] for d in dims)


def keepdim_spec(b: Builder, x: TensorValue, dims: Sequence[int], dtype: torch.dtype) -> Spec:
    """Layout of a result that keeps the reduced axes with size 1."""
    shape = tuple(1 if k in dims else size for k, size in enumerate(x.shape))
    return Spec.dense(shape, dtype, x.device)


@lowers(aten.sum.dim_IntList)
def sum_dims(
    b: Builder, x: TensorValue, dims: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorValue:
    return b.reduction("sum", x, dims or (), keepdim=keepdim, dtype=b.spec().dtype)


@lowers(aten.sum.default)
def sum_all(b: Builder, x: TensorValue, *, dtype: torch.dtype | None = None) -> TensorValue:
    return sum_dims(b, x, None)


def _mean(b: Builder, x: TensorValue, dims: Dims, keepdim: bool) -> TensorValue:
    dtype = b.spec().dtype
    count = count_of(x, axes_of(x, dims))

    def finish(total: Node) -> Node:
        return b.op("div", total, b.number(count, total.dtype))

    return b.reduction("sum", x, dims or (), keepdim=keepdim, dtype=dtype, finish=finish)


@lowers(aten.mean.dim)
def mean_dims(
    b: Builder, x: TensorValue, dims: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorValue:
    return _mean(b, x, dims, keepdim)


@lowers(aten.mean.default)
def mean_all(b: Builder, x: TensorValue, *, dtype: torch.dtype | None = None) -> TensorValue:
    return _mean(b, x, None, False)


@lowers(aten.prod.default)
def prod_all(b: Builder, x: TensorValue, *, dtype: torch.dtype | None = None) -> TensorValue:
    return b.reduction("prod", x, (), dtype=b.spec().dtype)


@lowers(aten.prod.dim_int)
def prod_dim(
    b: Builder, x: TensorValue, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorValue:
    return b.reduction("prod", x, [dim], keepdim=keepdim, dtype=b.spec().dtype)


def _extreme(b: Builder, kind: str, x: TensorValue, dims: Sequence[int] = (), keepdim: bool = False) -> TensorValue:
    """The largest or smallest elements; of bools, whether any or all are true."""
    name = {"max": "any", "min": "all"}[kind] if x.dtype == torch.bool else kind
    return b.reduction(name, x, dims, keepdim=keepdim)


@lowers(aten.amax.default, aten.amin.default)
def amax(b: Builder, x: TensorValue, dims: Sequence[int] = (), keepdim: bool = False) -> TensorValue:
    return _extreme(b, "max" if "amax" in str(b.target) else "min", x, dims, keepdim)


@lowers(aten.max.default, aten.min.default)
def max_all(b: Builder, x: TensorValue) -> TensorValue:
    return _extreme(b, "max" if "max" in str(b.target) else "min", x)


@lowers(aten.max.dim, aten.min.dim)
def max_dim(b: Builder, x: TensorValue, dim: int, keepdim: bool = False) -> tuple[TensorValue, TensorValue]:
    kind = "max" if "max" in str(b.target) else "min"
    if not x.ndim:
        return b.loop(lambda p: b.load(x, p)), b.loop(lambda p: b.const(0, torch.int64), b.spec(1))
    values = _extreme(b, kind, x, [dim], keepdim)
    compared = torch.int32 if x.dtype == torch.bool else None
    return values, b.reduction("arg" + kind, x, [dim], keepdim=keepdim, dtype=compared, spec=b.spec(1))


@lowers(aten.argmax.default, aten.argmin.default)
def argmax(b: Builder, x: TensorValue, dim: int | None = None, keepdim: bool = False) -> TensorValue | None:
    if x.dtype == torch.bool:  # which eager mode refuses
        return None
    if not x.ndim:
        return b.loop(lambda p: b.const(0, torch.int64))
    kind = "argmax" if "argmax" in str(b.target) else "argmin"
    return b.reduction(kind, x, () if dim is None else [dim], keepdim=keepdim)


@lowers(aten.any.default, aten.all.default)
def any_all(b: Builder, x: TensorValue) -> TensorValue:
    return _truth(b, x, (), False)


@lowers(aten.any.dim, aten.all.dim)
def any_dim(b: Builder, x: TensorValue, dim: int, keepdim: bool = False) -> TensorValue:
    return _truth(b, x, [dim], keepdim)


@lowers(aten.any.dims, aten.all.dims)
def any_dims(b: Builder, x: TensorValue, dims: Dims = None, keepdim: bool = False) -> TensorValue:
    if dims is not None and not dims:  # no axis is reduced
        return b.loop(lambda p: b.cast(b.load(x, p), torch.bool))
    return _truth(b, x, dims or (), keepdim)


def _truth(b: Builder, x: TensorValue, dims: Sequence[int], keepdim: bool) -> TensorValue:
    kind = "any" if ".any." in str(b.target) else "all"
    dtype = b.spec().dtype
    return b.reduction(kind, x, dims, keepdim=keepdim, dtype=torch.bool, finish=lambda v: b.cast(v, dtype))


# Variances.


def mean_and_squares(b: Builder, x: TensorValue, dims: Sequence[int]) -> tuple[TensorValue, TensorValue]:
    """Mean, and sum of squared distances from it, in the dtype of computation, with reduced axes kept as size 1."""
    dtype = compute_dtype(x.dtype)
    spec = keepdim_spec(b, x, dims, dtype)
    count = count_of(x, dims)
    mean = b.reduction(
        "sum", x, dims, keepdim=True, dtype=dtype, spec=spec,
        finish=lambda total: b.op("div", total, b.number(count, dtype)),
    )  # fmt: skip

    def squared(value: Node, position: tuple[Index, ...]) -> Node:
        gap = b.op("sub", value, b.read(mean, position))
        return b.op("mul", gap, gap)

    return mean, b.reduction("sum", x, dims, keepdim=True, dtype=dtype, spec=spec, prepare=squared)


def _variance(
    b: Builder, x: TensorValue, dims: Dims, correction: float | None, keepdim: bool, root: bool, position: int = 0
) -> tuple[TensorValue, TensorValue]:
    """Variance (or its root) in the layout of result number `position`, and the mean."""
    if x.dtype.is_complex:
        raise NotSupported("complex numbers", "dtype")
    gone = axes_of(x, dims)
    mean, squares = mean_and_squares(b, x, gone)
    count = count_of(x, gone)
    if not isinstance(count, int):
        raise NotSupported("a variance over a symbolic size", "changing")
    divisor = max(count - (1 if correction is None else correction), 0)

    def compute(total: Node) -> Node:
        value = b.op("div", total, b.const(divisor, total.dtype))
        return b.op("sqrt", value) if root else value

    spec = b.spec(position)
    squares, mean = (v if keepdim else layout.squeeze(v, gone) for v in (squares, mean))
    return b.pointwise(compute, squares, spec=spec), mean


@lowers(aten.var.correction)
def var(
    b: Builder, x: TensorValue, dims: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> TensorValue:
    return _variance(b, x, dims, correction, keepdim, False)[0]


@lowers(aten.std.correction)
def std(
    b: Builder, x: TensorValue, dims: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> TensorValue:
    return _variance(b, x, dims, correction, keepdim, True)[0]


@lowers(aten.var_mean.correction)
def var_mean(
    b: Builder, x: TensorValue, dims: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[TensorValue, TensorValue]:
    variance, mean = _variance(b, x, dims, correction, keepdim, False)
    return variance, b.pointwise(lambda v: v, mean, spec=b.spec(1))
