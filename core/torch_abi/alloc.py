"""The fastest tensor allocator that torch offers, per device type.

`empty_strided(device)` returns `fn(sizes: tuple[int, ...], strides: tuple[int, ...], dtype) -> Tensor` for
uninitialised memory. Torch's fast path takes it on the current device of a type. Where torch has none, or for a device
that need not be the current one, `fn` is the public `torch.empty_strided`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from sys import getrefcount
from typing import Any

import torch

from armature.torch_abi import memory

_C: Any = torch._C._dynamo.guards

Allocator = Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor]


def _public(device: torch.device, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(sizes, strides, dtype=dtype, device=device)


def empty_strided(device: torch.device, *, current: bool = True) -> Allocator:
    """The allocator for a device. current: it is the current one of its type whenever the allocator is called."""
    short: Allocator | None = getattr(_C, f"_empty_strided_{device.type}", None) if current else None
    return short if short is not None else partial(_public, device)


_ONE = empty_strided(torch.device("cpu"))


def laid_out(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor, copied if it has other strides along an axis of more than one element."""
    pairs = zip(tensor.shape, tensor.stride(), strides)
    if tensor.numel() == 0 or all(size == 1 or one == other for size, one, other in pairs):
        return tensor
    made = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


def _reference_counts(tensor: Any) -> tuple[int, int, int]:
    """The number of Python references to the tensor, of all references, and of tensors that use its memory."""
    return getrefcount(tensor), tensor._use_count(), memory.uses(memory.storage_number(tensor))


def _counts_in_caller(tensor: torch.Tensor) -> tuple[int, int, int]:
    """`_reference_counts` of a tensor that is in a variable of the caller."""
    return _reference_counts(tensor)


def overlaid(
    tensor: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """A tensor with unset values, in the memory of the given one if only the caller's variable refers to that.

    Storages that can't be resized, like those of NumPy arrays and files, have other owners.
    """
    sole = _ONE((1,), (1,), torch.float32)
    # Whether Python counts a call's argument as a reference depends on what evaluates frames at the moment.
    if type(tensor) is torch.Tensor and _reference_counts(tensor) == _counts_in_caller(sole):
        storage = tensor.untyped_storage()
        if storage.resizable() and not (memory.on_host(tensor) and storage.is_shared()):
            return reinterpret(tensor, sizes, strides, 0)
    return torch.empty_strided(sizes, strides, dtype=dtype, device=tensor.device)


def _as_strided(base: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> torch.Tensor:
    return base.detach().as_strided(sizes, strides, base.storage_offset() + offset)


# `reinterpret(tensor, sizes, strides, offset)`: the same memory with another layout and no autograd history. `offset`
# is in elements from the tensor's own first one.
reinterpret: Callable[[torch.Tensor, tuple[int, ...], tuple[int, ...], int], torch.Tensor] = getattr(
    _C, "_reinterpret_tensor", _as_strided
)
