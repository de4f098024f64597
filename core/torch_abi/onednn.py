"""Seam to oneDNN: convolution weights in the layout that its kernels read, and convolutions fused with activations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

NAME = "armature::packed_convolution_weight"


def is_there() -> bool:
    """Whether torch was built with oneDNN, and it is switched on."""
    return torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)


def _packed(
    weight: Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    size: Sequence[int],
) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_convolution_weight(weight, padding, stride, dilation, groups, size)
    return packed


def _defined() -> torch._ops.OpOverload:
    arguments = "Tensor weight, int[] padding, int[] stride, int[] dilation, int groups, int[] size"
    torch.library.define(NAME, f"({arguments}) -> Tensor")
    torch.library.impl(NAME, "CPU", _packed)
    torch.library.impl(NAME, "Meta", lambda weight, *others: torch.empty_like(weight))
    return torch.ops.armature.packed_convolution_weight.default


PACKED_WEIGHT = _defined()
"""A convolution's weight in oneDNN's layout for images of this size: only `fused_convolution()` can read it."""


def fused_convolution() -> torch._ops.OpOverload:
    """The operator `(image, weight, bias, padding, stride, dilation, groups, activation, numbers, algorithm)`: a
    convolution and the activation after it ("none", "relu", "hardtanh" with its two bounds), of an image with channels
    last."""
    return torch.ops.mkldnn._convolution_pointwise.default
