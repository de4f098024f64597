"""Memory that oneDNN takes on a CPU for convolutions and their gradients, besides the arguments and results: images by
rows, weights and results in layouts of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from armature_aten_lowerings.kernel_layouts import Arguments

aten = torch.ops.aten
BLOCK = 16  # channels that lie together in oneDNN's layout
FEW_CHANNELS = 4  # oneDNN takes an image of no more by rows, but copies the result from a layout of its own


def of_convolution(args: Arguments, result: Tensor) -> int:
    """Bytes for a convolution of images: of images by rows, or with channels last, where only the weight is copied."""
    image, weight, *_ = args
    if args[6] or not are_images(image, result):
        return 0
    if not are_by_rows(image, result):
        return copies_of(weight)
    made = blocked(result)
    return max(read(image) + made + int(weight.nbytes) - int(result.nbytes), made)


def of_gradients(args: Arguments, results: object) -> int:
    """Bytes for gradients of a convolution of images: of images by rows, or the one of an image with channels last."""
    gradient, image, weight, _, _, _, _, transposed, _, _, mask = args
    if transposed or not are_images(gradient, image):
        return 0
    if are_by_rows(gradient, image):
        alone = list(mask) == [True, False, False]
        return of_image_by_rows(gradient, image, weight) if alone else blocked(gradient) + read(image)
    return of_turned_image(gradient, weight) if list(mask) == [True, False, False] else 0


def of_image_by_rows(gradient: Tensor, image: Tensor, weight: Tensor) -> int:
    """Bytes for the gradient of an image by rows: first for what oneDNN reads, then for the result twice."""
    made = blocked(image)
    return max(blocked(gradient) + int(weight.nbytes) + made - int(image.nbytes), made)


def of_turned_image(gradient: Tensor, weight: Tensor) -> int:
    """The same with channels last: a copy of the incoming gradient, and of the weight for torch and for oneDNN."""
    copied = 0 if gradient.is_contiguous(memory_format=torch.channels_last) else int(gradient.nbytes)
    return copied + copies_of(weight)


def copies_of(weight: Tensor) -> int:
    """Bytes of a weight's copies beside an image with channels last: torch's, unless it has channels last itself, and
    oneDNN's."""
    return int(weight.nbytes) * (1 if weight.is_contiguous(memory_format=torch.channels_last) else 2)


def are_images(*images: object) -> bool:
    """Whether these are images of known sizes, of which oneDNN makes another on a CPU."""
    if not torch.backends.mkldnn.is_available():
        return False
    return all(
        isinstance(v, Tensor)
        and v.dim() == 4
        and v.device.type == "cpu"
        and v.dtype == torch.float
        and all(type(n) is int for n in (*v.shape, *v.stride()))
        for v in images
    )


def are_by_rows(*images: Tensor) -> bool:
    """Whether these are such images by rows."""
    return are_images(*images) and all(v.is_contiguous() for v in images)


def read(image: Tensor) -> int:
    """Bytes of oneDNN's copy of an image that it reads."""
    return 0 if image.shape[1] <= FEW_CHANNELS else blocked(image)


def blocked(image: Tensor) -> int:
    """Bytes of an image in oneDNN's layout, which fills up the last block of channels."""
    channels = -(-image.shape[1] // BLOCK) * BLOCK
    return int(image.shape[0] * channels * math.prod(image.shape[2:]) * image.itemsize)


WORKSPACES: Mapping[torch._ops.OpOverload, Callable[[Arguments, Tensor], int]] = {
    aten.convolution.default: of_convolution,
    aten.convolution_backward.default: of_gradients,
}
