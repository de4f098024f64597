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
    """Whether the value is a number that gets a gradient, of the tensor's dtype."""
    if not isinstance(self, TracedTensor) or not isinstance(value, TracedTensor) or not torch.is_grad_enabled():
        return False
    given, number = self.fake, value.fake
    plain = given.dim() > 0 and number.dim() == 0 and given.dtype == number.dtype and given.device == number.device
    return plain and number.requires_grad and given.is_contiguous() and dim.is_constant


def filled(self: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`torch.index_fill`."""
    chosen = torch.zeros(self.shape[dim], dtype=torch.bool, device=self.device).index_fill(0, index, True)
    rows = [1] * self.dim()
    rows[dim] = -1
    return torch.where(chosen.view(rows), value, self)


def filled_in_place(self: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`Tensor.index_fill_`."""
    return self.copy_(filled(self, dim, index, value))
