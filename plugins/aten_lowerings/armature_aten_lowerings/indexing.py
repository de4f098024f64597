"""Reads and writes at computed positions: gathers, scatters, embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import attrs
import torch

from armature.backend_api import (
    Builder,
    Index,
    Node,
    NotSupported,
    Position,
    Spec,
    TensorValue,
    Var,
    compute_dtype,
    hint,
    layout,
    lowers,
    numel,
)

aten = torch.ops.aten
Maybe = TensorValue | None
Bound = tuple[Var, Node]
FEW = 4
"""Values combined with 16-bit ones are few if the result has more elements than this many times theirs."""


@lowers(aten.embedding.default)
def embedding(
    b: Builder,
    weight: TensorValue,
    indices: TensorValue,
    padding: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> TensorValue:
    def element(p: Position) -> Node:
        bound = b.indirect(0, weight.shape[0], b.load(indices, p[:-1]))
        return b.load(weight, (bound[0], p[-1]), [bound])

    return b.loop(element)


@lowers(aten.embedding_dense_backward.default)
def embedding_dense_backward(
    b: Builder, grad: TensorValue, indices: TensorValue, rows: Index, padding: int, scale_grad_by_freq: bool
) -> TensorValue | None:
    if scale_grad_by_freq:
        return None
    wide = compute_dtype(grad.dtype)

    def element(p: Position) -> tuple[Position, Node, tuple[Bound, ...]]:
        label = b.cast(b.load(indices, p[:-1]), torch.int64)
        bound = b.indirect(0, rows, label)
        value = b.read(grad, p, wide)
        if padding >= 0:
            counts = b.op("ne", label, b.const(padding, torch.int64))
            value = b.where(counts, value, b.const(0, value.dtype))
        return (bound[0], p[-1]), value, (bound,)

    out = _target(b, lambda p: b.const(0, wide))
    b.store(out.buffer, grad.shape, element, atomic=True)
    return _rounded(b, out)


def _target(b: Builder, start: Callable[[Position], Node]) -> TensorValue:
    """A buffer with the values of `start`, for values that are combined with them where several may meet: a sum of many
    values in 16 bits would stop growing, so it is float32 for such results."""
    spec = _row_of(b.spec())
    wide = compute_dtype(spec.dtype)
    return b.loop(lambda p: b.cast(start(p), wide), attrs.evolve(spec, dtype=wide))


def _costs_more(b: Builder, values: tuple[Index, ...]) -> bool:
    """Whether such a buffer costs more than it gives, because values of this shape leave most of it as it is."""
    spec = b.spec()
    return compute_dtype(spec.dtype) != spec.dtype and FEW * hint(numel(values)) < hint(numel(spec.shape))


def _rounded(b: Builder, target: TensorValue) -> TensorValue:
    """The result from its target."""
    target = layout.reshape(target, b.spec().shape)
    return target if target.dtype == b.spec().dtype else b.pointwise(lambda value: value, target)


@lowers(aten.index_select.default)
def index_select(b: Builder, x: TensorValue, dim: int, indices: TensorValue) -> TensorValue:
    x, dim = _with_axes(x), layout.normal_axis(dim, x.ndim)

    def element(p: Position) -> Node:
        bound = b.indirect(0, x.shape[dim], b.load(indices, (p or (0,))[dim:][: indices.ndim]))
        return b.load(x, (*p[:dim], bound[0], *p[dim + 1 :]), [bound])

    return b.loop(element)


@lowers(aten.gather.default)
def gather(b: Builder, x: TensorValue, dim: int, indices: TensorValue, *, sparse_grad: bool = False) -> TensorValue:
    x, dim = _with_axes(x), layout.normal_axis(dim, x.ndim)

    def element(p: Position) -> Node:
        bound = b.indirect(0, x.shape[dim], b.load(indices, p))
        return b.load(x, (*p[:dim], bound[0], *p[dim + 1 :]), [bound])

    return b.loop(element)


def _with_axes(x: TensorValue) -> TensorValue:
    """A tensor without axes as a row of one element, which is what these operators take it for."""
    return x if x.ndim else layout.reshape(x, (1,))


def _row_of(spec: Spec) -> Spec:
    """The same for a layout."""
    return spec if spec.shape else attrs.evolve(spec, shape=(1,), strides=(1,))


def _into_copy(b: Builder, x: TensorValue) -> TensorValue:
    return b.loop(partial(b.load, _with_axes(x)), _row_of(b.spec()))


@lowers(aten.scatter_add.default)
def scatter_add(b: Builder, x: TensorValue, dim: int, indices: TensorValue, source: TensorValue) -> TensorValue | None:
    if 0 in indices.shape:
        return _rounded(b, _into_copy(b, x))
    if _costs_more(b, indices.shape):
        return None
    x, dim = _with_axes(x), layout.normal_axis(dim, x.ndim)
    out = _target(b, partial(b.load, x))
    b.store(out.buffer, indices.shape, partial(_scattered, b, x, dim, indices, source), atomic=True)
    return _rounded(b, out)


COMBINED: Mapping[str, str] = MappingProxyType({"amax": "max", "amin": "min", "prod": "prod"})


@lowers(aten.scatter_reduce.two)
def scatter_reduce(
    b: Builder,
    x: TensorValue,
    dim: int,
    indices: TensorValue,
    source: TensorValue,
    reduce: str,
    *,
    include_self: bool = True,
) -> TensorValue | None:
    """The largest, the smallest, or the product of what goes to one place; sums and means decompose."""
    if reduce not in COMBINED or x.dtype == torch.bool:
        return None
    if 0 in indices.shape:
        return _rounded(b, _into_copy(b, x))
    if _costs_more(b, indices.shape):
        return None
    x, dim, op = _with_axes(x), layout.normal_axis(dim, x.ndim), COMBINED[reduce]
    out = _target(b, partial(b.load, x))
    if not include_self:
        nothing = _neutral(op, x.dtype)
        b.store(out.buffer, indices.shape, lambda p: _scattered(b, x, dim, indices, nothing, p))
    combined = partial(_scattered, b, x, dim, indices, source)
    b.store(out.buffer, indices.shape, combined, atomic=True, combine=op)
    return _rounded(b, out)


def _neutral(op: str, dtype: torch.dtype) -> float:
    if op == "prod":
        return 1
    if dtype.is_floating_point:
        return -math.inf if op == "max" else math.inf
    return torch.iinfo(dtype).min if op == "max" else torch.iinfo(dtype).max


@lowers(aten.scatter.src, aten.scatter.value)
def scatter(
    b: Builder, x: TensorValue, dim: int, indices: TensorValue, source: TensorValue | float
) -> TensorValue | None:
    # Positions written twice have no defined value, in eager mode either.
    out = _into_copy(b, x)
    if 0 not in indices.shape:
        scattered = partial(_scattered, b, _with_axes(x), layout.normal_axis(dim, x.ndim), indices, source)
        b.store(out.buffer, indices.shape, scattered)
    return _rounded(b, out)


def _scattered(
    b: Builder, x: TensorValue, dim: int, indices: TensorValue, source: TensorValue | float, p: Position
) -> tuple[Position, Node, tuple[Bound, ...]]:
    bound = b.indirect(0, x.shape[dim], b.load(indices, p))
    value = b.load(source, (p or (0,))[: source.ndim]) if isinstance(source, TensorValue) else b.const(source, x.dtype)
    return (*p[:dim], bound[0], *p[dim + 1 :]), value, (bound,)


class _IndexLayout:
    """The layout of `x[indices]`: which axes of the result come from the index tensors, which from `x`."""

    def __init__(self, x: TensorValue, indices: Sequence[Maybe]) -> None:
        self.x = x
        self.indices_by_axis = {k: i for k, i in enumerate(indices) if i is not None}
        if any(i.dtype in (torch.bool, torch.uint8) for i in self.indices_by_axis.values()):
            raise NotSupported("a mask as index")
        self.shape = layout.broadcast_shape(*(i.shape for i in self.indices_by_axis.values()))
        axes = sorted(self.indices_by_axis)
        together = axes == list(range(axes[0], axes[-1] + 1))
        # index axes are where the first one was, or in front if they are not adjacent
        self.first = axes[0] if together else 0

    def result_shape(self) -> tuple[Index, ...]:
        """Shape of `x[indices]`."""
        rest = [size for k, size in enumerate(self.x.shape) if k not in self.indices_by_axis]
        return (*rest[: self.first], *self.shape, *rest[self.first :])

    def at(self, b: Builder, p: Position) -> tuple[Position, tuple[Bound, ...]]:
        """Coordinates in `x` of the result's element at `p`."""
        rank = len(self.shape)
        middle = p[self.first : self.first + rank]
        rest = iter((*p[: self.first], *p[self.first + rank :]))
        where: list[Index] = []
        bounds: list[Bound] = []
        for axis, size in enumerate(self.x.shape):
            if axis not in self.indices_by_axis:
                where.append(next(rest))
                continue
            indices = self.indices_by_axis[axis]
            number = b.load(indices, layout.broadcast_position(indices, middle))
            bounds.append(b.indirect(axis, size, number, from_end=True))
            where.append(bounds[-1][0])
        return tuple(where), tuple(bounds)


@lowers(aten.index.Tensor, aten._unsafe_index.Tensor)
def index_tensor(b: Builder, x: TensorValue, indices: Sequence[Maybe]) -> TensorValue:
    indexed = _IndexLayout(x, indices)

    def element(p: Position) -> Node:
        where, bounds = indexed.at(b, p)
        return b.load(x, where, bounds)

    return b.loop(element)


def _put_where(
    b: Builder, x: TensorValue, mask: TensorValue, values: TensorValue, accumulate: bool
) -> TensorValue | None:
    """`x[mask] = values`, where all selected positions get the same values: a choice at each position."""
    rest = x.ndim - mask.ndim
    if rest < 0 or mask.shape != x.shape[: mask.ndim] or values.ndim > rest:
        return None

    def element(p: Position) -> Node:
        old, new = b.read(x, p, x.dtype), b.read(values, p[mask.ndim :], x.dtype)
        return b.where(b.load(mask, p[: mask.ndim]), b.op("add", old, new) if accumulate else new, old)

    return b.loop(element)


@lowers(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(
    b: Builder, x: TensorValue, indices: Sequence[Maybe], values: TensorValue, accumulate: bool = False
) -> TensorValue | None:
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype == torch.bool:
        return _put_where(b, x, indices[0], values, accumulate)
    indexed = _IndexLayout(x, indices)
    shape = indexed.result_shape()
    if 0 in shape:
        return _into_copy(b, x)
    if accumulate and _costs_more(b, shape):
        return None

    def element(p: Position) -> tuple[Position, Node, tuple[Bound, ...]]:
        where, bounds = indexed.at(b, p)
        return where, b.read(values, p, values.dtype), bounds

    out = _target(b, partial(b.load, x)) if accumulate else _into_copy(b, x)
    b.store(out.buffer, shape, element, atomic=accumulate)
    return _rounded(b, out)
