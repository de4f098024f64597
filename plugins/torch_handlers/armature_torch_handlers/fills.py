"""`index_fill` with a tensor that requires gradients: autograd's formula takes the unique places, so that sizes in the
backward graph would depend on numbers."""

from __future__ import annotations

import torch

from armature.plugin_api import Call, TracedTensor, Value, handles


@handles(torch.index_fill, torch.Tensor.index_fill)
def index_fill(call: Call, self: Value, dim: Value, index: Value, value: Value) -> Value | None:
    """Choose between the value and the tensor's elements."""
    return call.polyfill(filled, self, dim, index, value) if is_learned(self, dim, value) else None


@handles(torch.Tensor.index_fill_)
def index_fill_(call: Call, self: Value, dim: Value, index: Value, value: Value) -> Value | None:
    """The same, written to the tensor."""
    return call.polyfill(filled_in_place, self, dim, index, value) if is_learned(self, dim, value) else None


def is_learned(self: Value, dim: Value, value: Value) -> bool:
    """Whether the value is a number that gets a gradient."""
    if not isinstance(self, TracedTensor) or not isinstance(value, TracedTensor) or not torch.is_grad_enabled():
        return False
    number = value.fake
    return number.dim() == 0 and number.requires_grad and number.dtype.is_complex <= self.fake.dtype.is_complex


def filled(self: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`torch.index_fill`: a copy, so that the result has the layout that eager mode gives it."""
    return filled_in_place(self.clone(), dim, index, value)


def filled_in_place(self: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`Tensor.index_fill_`. A tensor without axes is filled like one with one element."""
    size = self.shape[dim] if self.dim() else 1
    chosen = torch.zeros(size, dtype=torch.bool, device=self.device).index_fill(0, index, True)
    rows = [1] * self.dim()
    if rows:
        rows[dim] = -1
    return self.copy_(torch.where(chosen.view(rows), value.to(self), self))
