"""Decompositions of operators that write at computed places, to those that have loops."""

from __future__ import annotations

import math

import torch
from torch import Tensor

aten = torch.ops.aten
NAMES = {"add": "sum", "multiply": "prod"}  # of the reductions of `scatter`, among those of `scatter_reduce`


def from_front(index: Tensor, target: Tensor, axis: int) -> Tensor:
    """The index for an operator that counts negative ones from the end, where this one refuses them: out of range."""
    size = target.shape[axis] if target.dim() else 1
    return torch.where(index < 0, size, index)


def index_copy(self: Tensor, dim: int, index: Tensor, source: Tensor) -> object:
    """Slices written at places along an axis."""
    if not self.dim() and not source.dim() and index.numel() == 1:
        return aten.index_copy.default(self.view(1), 0, index.reshape(1), source.view(1)).view(())
    axis, index = dim % max(self.dim(), 1), index.reshape(-1)
    if self.dim() == 1 and not source.dim():
        source = source.view(1)
    if self.dim() != source.dim() or source.shape[axis] != index.shape[0]:
        return NotImplemented
    if any(self.shape[k] != source.shape[k] for k in range(self.dim()) if k != axis):
        return NotImplemented
    return aten.index_put.default(self, [None] * axis + [from_front(index, self, axis)], source)


def index_reduce(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> object:
    """As `scatter_reduce`, with an index for each element of the source."""
    if not self.dim():
        row = index_reduce(self.view(1), 0, index, source.reshape(-1), reduce, include_self=include_self)
        return row.view(()) if isinstance(row, Tensor) else row
    axis, index = dim % self.dim(), index.reshape(-1)
    alike = self.dim() == source.dim()
    if not alike or any(self.shape[k] != source.shape[k] for k in range(self.dim()) if k != axis):
        return NotImplemented
    if source.shape[axis] != index.shape[0]:
        return NotImplemented
    column = index.view([-1 if k == axis else 1 for k in range(self.dim())]).expand_as(source)
    return aten.scatter_reduce.two(self, axis, column, source, reduce, include_self=include_self)


def index_fill(self: Tensor, dim: int, index: Tensor, value: Tensor) -> object:
    """Writes a number that a tensor holds. torch's own decomposition reads the tensor's value."""
    if value.dim():
        return NotImplemented
    if not self.dim():
        row: Tensor = aten.index_put.default(self.view(1), [index.reshape(-1)], value.to(self.dtype))
        return row.view(())
    rows = [None] * (dim % self.dim()) + [index.reshape(-1)]  # negative ones count from the end
    return aten.index_put.default(self, rows, value.to(self.dtype))


def index_fill_number(self: Tensor, dim: int, index: Tensor, value: complex) -> object:
    """The same with a number of the program."""
    return index_fill(self, dim, index, torch.full((), value, dtype=self.dtype, device=self.device))


def scatter_by(self: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str) -> object:
    """`scatter(..., reduce="add")`."""
    if reduce not in NAMES:
        return NotImplemented
    return aten.scatter_reduce.two(self, dim, index, src, NAMES[reduce])


def scatter_number_by(self: Tensor, dim: int, index: Tensor, value: float, *, reduce: str) -> object:
    """The same with one number for all places."""
    if reduce not in NAMES or isinstance(value, complex):
        return NotImplemented
    filled = torch.full_like(index, value, dtype=self.dtype)
    return aten.scatter_reduce.two(self, dim, index, filled, NAMES[reduce])


def put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> object:
    """Elements written by their row-major position."""
    if index.numel() != source.numel() or not self.numel():
        return NotImplemented
    flat = index.reshape(-1)
    changed: Tensor = aten.index_put.default(self.reshape(-1), [flat], source.reshape(-1), accumulate)
    return changed.view(self.shape)


def angle(self: Tensor) -> object:
    """The angle of real numbers: 0, or pi below zero."""
    if self.is_complex():
        return NotImplemented
    dtype = self.dtype if self.dtype.is_floating_point else torch.get_default_dtype()
    half = torch.full((), math.pi, dtype=dtype, device=self.device)
    turned = torch.where(self < 0, half, 0.0)
    return torch.where(torch.isnan(self), self.to(dtype), turned)
