"""Operators that autocast does not know, but whose kernels call others that it casts for.

Their results have 16 bits. Neither torch's fakes of them nor calls from a graph, where autocast is off, know of that.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from armature.plugin_api import Call, TracedTensor, Value, existing, handles


def is_cast(call: Call, value: Value) -> bool:
    """Whether autocast is on for the device of a tensor."""
    fake = value.as_fake(call.tracing) if isinstance(value, TracedTensor) else None
    if not isinstance(fake, Tensor) or not torch.amp.is_autocast_available(fake.device.type):
        return False
    return torch.is_autocast_enabled(fake.device.type)


def from_minus_one(like: Tensor, count: int, align_corners: bool) -> Tensor:
    """The places of pixels along an axis, between -1 and 1."""
    if count <= 1:
        return like.new_zeros(1)
    places = torch.linspace(-1, 1, count, dtype=like.dtype, device=like.device)
    return places if align_corners else places * (count - 1) / count


def affine_grid(theta: Tensor, size: tuple[int, ...], align_corners: bool) -> Tensor:
    """`torch.affine_grid_generator`, with its product of matrices to be seen."""
    batch, _, *extents = size
    axes = [from_minus_one(theta, extent, align_corners) for extent in extents]
    places = [*reversed(torch.meshgrid(axes, indexing="ij")), theta.new_ones(extents)]
    base = torch.stack(places, -1).expand(batch, *extents, len(places))
    product = base.reshape(batch, -1, len(places)).bmm(theta.transpose(1, 2))
    return product.view(batch, *extents, len(extents))


@handles(torch.affine_grid_generator)
def affine_grid_generator(call: Call, theta: Value, size: Value, align_corners: Value) -> Value | None:
    """Under autocast the grid is computed by a product in 16 bits."""
    return call.inline(affine_grid, theta, size, align_corners) if is_cast(call, theta) else None


@handles(F.affine_grid)
def traced_through(call: Call, theta: Value, *args: Value, **kwargs: Value) -> Value | None:
    """Under autocast the function is traced, which checks its arguments and calls the operator above."""
    return call.polyfill(F.affine_grid, theta, *args, **kwargs) if is_cast(call, theta) else None


@handles(
    torch.linalg.pinv,
    *existing(
        "torch.pinverse",
        "torch.Tensor.pinverse",
        "torch._transformer_encoder_layer_fwd",
        "torch._native_multi_head_attention",
    ),
)
def casts_inside(call: Call, first: Value, *args: Value, **kwargs: Value) -> Value | None:
    """Left to torch under autocast."""
    if is_cast(call, first):
        call.graph_break("casts-inside", operation=call.fn.__name__)
    return None
