"""Cumulative sums and products."""

from __future__ import annotations

import torch

from armature.backend_api import (
    Builder,
    Node,
    NotSupported,
    Position,
    TensorValue,
    compute_dtype,
    hint,
    index,
    layout,
    lowers,
)

aten = torch.ops.aten
LONG = 4096  # points of a row above which a scan by a single thread of work takes longer than ATen's, which is cut


def _scan(b: Builder, op: str, x: TensorValue, dim: int) -> TensorValue:
    axis = layout.normal_axis(dim, x.ndim) if x.ndim else 0
    rows = index.numel(size for k, size in enumerate(x.shape) if k != axis)
    if x.ndim and hint(x.shape[axis]) > LONG and hint(rows) < b.features.parallel:
        raise NotSupported("a scan along few long rows")
    spec = b.spec()

    def element(position: Position) -> Node:
        return b.scan(op, x, axis, position, compute_dtype(spec.dtype))

    return b.loop(element, spec)


@lowers(aten.cumsum.default)
def cumsum(b: Builder, x: TensorValue, dim: int, *, dtype: torch.dtype | None = None) -> TensorValue:
    return _scan(b, "sum", x, dim)


@lowers(aten.cumprod.default)
def cumprod(b: Builder, x: TensorValue, dim: int, *, dtype: torch.dtype | None = None) -> TensorValue:
    return _scan(b, "prod", x, dim)
