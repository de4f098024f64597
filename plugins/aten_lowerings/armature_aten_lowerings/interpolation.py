"""Enlarged and reduced images on a CPU: where ATen's kernels beat loops, the operators and their gradients stay whole.

torch decomposes these operators above autograd, into reads at computed positions whose gradients are additions in
memory, one for each read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import attrs
import torch
from torch import Tensor, fx
from torch.nn import functional

from armature.plugin_api import fake_of, of_transform, torch_decompositions, undecomposed

aten = torch.ops.aten
SIGNATURE = inspect.signature(functional.interpolate)


@attrs.frozen
class Kind:
    """An operator of torch and its gradient. aligns: whether it takes `align_corners`."""

    forward: torch._ops.OpOverload
    backward: torch._ops.OpOverload
    aligns: bool


def _kind(name: str, aligns: bool) -> Kind:
    return Kind(getattr(aten, name).default, getattr(aten, f"{name}_backward").default, aligns)


KINDS: Mapping[tuple[str, int], Kind] = MappingProxyType(
    {
        **{("nearest", axes): _kind(f"upsample_nearest{axes}d", False) for axes in (1, 2, 3)},
        **{("nearest-exact", axes): _kind(f"_upsample_nearest_exact{axes}d", False) for axes in (1, 2, 3)},
        ("linear", 1): _kind("upsample_linear1d", True),
        ("bilinear", 2): _kind("upsample_bilinear2d", True),
        ("bicubic", 2): _kind("upsample_bicubic2d", True),
        ("trilinear", 3): _kind("upsample_trilinear3d", True),
    }
)
"""The operators, by mode and number of axes of an image."""


class _Context(Protocol):
    """What backward needs of a call."""

    kind: Kind
    args: tuple[Sequence[int], *tuple[object, ...]]
    shape: torch.Size


class _Interpolated(torch.autograd.Function):
    """An operator of KINDS, with the derivative that torch itself has for it."""

    @staticmethod
    def forward(x: Tensor, kind: Kind, args: tuple[object, ...]) -> Tensor:
        with undecomposed():
            found: Tensor = kind.forward(x, *args)
        return found

    @staticmethod
    def setup_context(
        ctx: _Context, inputs: tuple[Tensor, Kind, tuple[Sequence[int], *tuple[object, ...]]], output: Tensor
    ) -> None:
        x, ctx.kind, ctx.args = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx: _Context, *grads: Tensor) -> tuple[Tensor, None, None]:
        size, *rest = ctx.args
        return ctx.kind.backward(grads[0], size, ctx.shape, *rest), None, None


_interpolated: Callable[[Tensor, Kind, tuple[object, ...]], object] = _Interpolated.apply


def interpolate(
    x: Tensor, mode: str, size: Sequence[int], align_corners: bool, scales: Sequence[float | None]
) -> object:
    """`torch.nn.functional.interpolate` to a size that is known. scales: by which positions are computed, for each
    axis; None: by the ratio of the sizes."""
    kind = KINDS[mode, len(size)]
    args = (list(size), *([align_corners] if kind.aligns else []), *scales)
    return _interpolated(x, kind, args)


def keep_interpolation(module: object, ctx: object) -> object:
    """Pass over the captured graph: calls of `torch.nn.functional.interpolate` are redirected to `interpolate`."""
    if isinstance(module, fx.GraphModule):
        for node in module.graph.find_nodes(op="call_function", target=functional.interpolate):
            call = SIGNATURE.bind(*node.args, **node.kwargs)
            call.apply_defaults()
            if args := _arguments(call, fake_of(node)):
                node.target, node.args, node.kwargs = interpolate, args, {}
        module.recompile()
    return module


def _arguments(call: inspect.BoundArguments, result: Tensor) -> tuple[object, ...] | None:
    """The arguments of `interpolate`; None where torch's decompositions stay."""
    given = call.arguments
    x, mode = given["input"], given["mode"]
    image = fake_of(x)
    size, scale = list(result.shape[2:]), given["scale_factor"]
    if (mode, len(size)) not in KINDS or given["antialias"] or not _is_plain(image):
        return None
    if mode == "bicubic" and has_channels_last(image):  # which ATen has no kernels for
        return None
    if any(type(n) is not int for n in (*image.shape, *size)) or 0 in (*image.shape, *size):
        return None
    if scale is None or given["recompute_scale_factor"]:
        scales: list[float | None] = [None] * len(size)
    else:
        scales = [float(one) for one in (scale if isinstance(scale, (list, tuple)) else [scale] * len(size))]
    return x, mode, size, bool(given["align_corners"]), scales


def _is_plain(image: object) -> bool:
    if not isinstance(image, Tensor) or of_transform(image):
        return False
    return image.device.type == "cpu" and image.is_floating_point()


def unless_rows_of_a_cpu(operator: torch._ops.OpOverload) -> Callable[..., object]:
    """torch's decomposition, except for images in rows on a CPU: neighbours in a row are read from positions of their
    own, one by one, which takes two to four times as long as ATen's kernel. With channels last, neighbours are the
    channels of one position."""
    torchs = torch_decompositions([operator])[operator]

    def decomposed(x: Tensor, *args: object, **kwargs: object) -> object:
        return torchs(x, *args, **kwargs) if x.device.type != "cpu" or has_channels_last(x) else NotImplemented

    return decomposed


def has_channels_last(image: Tensor) -> bool:
    """Whether neighbours in memory are the channels of one position."""
    return image.is_contiguous(memory_format=torch.channels_last) and not image.is_contiguous()


def unless_on_a_cpu(operator: torch._ops.OpOverload) -> Callable[..., object]:
    """torch's decomposition, except on a CPU, where ATen's kernel is ten times as fast as reads at computed
    positions."""
    torchs = torch_decompositions([operator])[operator]
    return lambda x, *args, **kwargs: NotImplemented if x.device.type == "cpu" else torchs(x, *args, **kwargs)
