"""0-d tensors as factors, fill values and bases, such as `torch.add(x, y, alpha=t)` and `torch.full(size, t)`, whose
number torch reads in eager mode: a graph computes with the tensor instead.

The number of an int tensor may be known before the graph (`number_tensors`), so these are tensors of floats only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeGuard

import torch

from armature.plugin_api import Call, TracedTensor, Value, handles

SUBTRACTIONS = (
    torch.Tensor.sub_, torch.Tensor.subtract_, torch.Tensor.sub, torch.Tensor.subtract, torch.sub, torch.subtract,
    torch.rsub,
)  # fmt: skip
IN_PLACE = (torch.Tensor.add_, torch.Tensor.sub_, torch.Tensor.subtract_)


def is_read(value: Value | None) -> TypeGuard[TracedTensor]:
    """Whether it is a tensor from which torch would read a float. A graph would also compute gradients for one that
    requires them, which torch does not."""
    if not isinstance(value, TracedTensor) or not value.is_plain:
        return False
    return value.fake.dim() == 0 and value.dtype.is_floating_point and not value.fake.requires_grad


@handles(torch.add, torch.Tensor.add, torch.Tensor.add_, torch.Tensor.sub_, torch.Tensor.subtract_)
def scaled_sum(call: Call, self: Value, other: Value, *, alpha: Value | None = None) -> Value | None:
    """A sum, or a difference in place, with a tensor as factor."""
    return with_factor(call, self, other, alpha)


def with_factor(call: Call, self: Value, other: Value, alpha: Value | None) -> Value | None:
    """`self + alpha * other`, or `-`, as the call's function says; None if the factor is no tensor."""
    if alpha is not None and alpha.is_choice:
        alpha = call.graph_call(torch.clone, alpha)
    if not isinstance(self, TracedTensor) or not isinstance(other, TracedTensor) or not is_read(alpha):
        return None
    if not self.dtype.is_floating_point or not other.dtype.is_floating_point:
        return None
    written = call.constant(call.fn in IN_PLACE)
    return call.polyfill(scaled, self, other, alpha, call.constant(call.fn in SUBTRACTIONS), written)


def scaled(self: torch.Tensor, other: torch.Tensor, alpha: torch.Tensor, negative: bool, written: bool) -> torch.Tensor:
    """The sum as torch's kernels compute it: in float32 for 16-bit floats."""
    dtype = torch.promote_types(self.dtype, other.dtype)
    exact = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    term = other.to(exact) * alpha.to(exact)
    if written and self.dtype is exact:
        return self.sub_(term) if negative else self.add_(term)
    total = self.to(exact) - term if negative else self.to(exact) + term
    return self.copy_(total) if written else total.to(torch.result_type(self, other))


OPTIONS = {"size", "input", "fill_value", "dtype", "device"}


@handles(torch.full, torch.full_like, torch.Tensor.new_full)
def filled(call: Call, *args: Value, **options: Value) -> Value | None:
    """A tensor filled with the number of a tensor: an empty one to which that is written."""
    place = 2 if call.fn is torch.Tensor.new_full else 1
    value = options.get("fill_value") or (args[place] if len(args) > place else None)
    return call.polyfill(FILLED[call.fn], *args, **options) if is_read(value) and options.keys() <= OPTIONS else None


def full(
    size: Sequence[int],
    fill_value: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """`torch.full`, of the default dtype."""
    return torch.empty(size, dtype=dtype or torch.get_default_dtype(), device=device).fill_(fill_value)


def full_like(
    input: torch.Tensor,
    fill_value: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """`torch.full_like`."""
    return torch.empty_like(input, dtype=dtype, device=device).fill_(fill_value)


def new_full(
    self: torch.Tensor,
    size: Sequence[int],
    fill_value: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """`self.new_full`."""
    return self.new_empty(size, dtype=dtype, device=device).fill_(fill_value)


FILLED: dict[object, Callable[..., torch.Tensor]] = {
    torch.full: full, torch.full_like: full_like, torch.Tensor.new_full: new_full,
}  # fmt: skip


@handles(torch._foreach_pow)
def powers(call: Call, self: Value, exponent: Value) -> Value | None:
    """The powers of the number of a tensor, as Adam takes them of a tensor of betas."""
    return call.polyfill(powers_of, self, exponent) if is_read(self) else None


def powers_of(self: torch.Tensor, exponent: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """`torch._foreach_pow(self, exponent)`."""
    return tuple([torch.pow(self.to(one.dtype), one) for one in exponent])
