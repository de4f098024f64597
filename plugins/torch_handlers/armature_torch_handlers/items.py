"""Writes by a mask that is one bool, without dimensions: torch itself would ask for its value."""

from __future__ import annotations

from typing import Any

import torch

from armature.plugin_api import Call, TracedTensor, Value, handles


@handles(torch.Tensor.__setitem__)
def write_all_or_nothing(call: Call, self: Value, key: Value, value: Value) -> Value | None:
    """`x[mask] = number`: the number everywhere, or nowhere."""
    if not isinstance(self, TracedTensor) or not isinstance(key, TracedTensor) or not value.is_constant:
        return None
    number = type(value.as_constant()) in (bool, int, float)
    if not number or key.dtype is not torch.bool or key.shape or key.device != self.device:
        return None
    return call.polyfill(write_where, self, key, value)


def write_where(self: torch.Tensor, mask: torch.Tensor, number: Any) -> None:
    """The number as a tensor of the dtype written to: it is cast as in a plain write."""
    self.copy_(torch.where(mask, torch.full((), number, dtype=self.dtype, device=self.device), self))
