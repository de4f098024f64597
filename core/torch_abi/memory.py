"""The memory of tensors: addresses, and how many tensors share it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef as StorageWeakRef

_C: Any = torch._C

HOST = torch.device("cpu")
"""The device whose memory is that of the process."""
LARGE = 31 << 20
"""Bytes of a large block. glibc's limit, up to which a freed block changes what is kept, is 32 MiB."""


def _same_addresses(tensors: Sequence[Any], addresses: Sequence[int | None], positions: Sequence[int]) -> bool:
    return all(tensors[k].data_ptr() == addresses[k] for k in positions)


same_addresses: Callable[[list[Any], list[int | None], list[int]], bool] = getattr(
    _C, "_tensors_data_ptrs_at_indices_equal", _same_addresses
)
"""`same_addresses(tensors, addresses, positions)`: whether the tensors at these positions lie where `addresses` says at
the same positions; it is as long as `tensors`. Builds of torch with CUDA have it in one call."""

uses: Callable[[int], int] = _C._storage_Use_Count
"""How many tensors and storage objects hold the storage of this number (`storage_number`)."""


def storage_number(tensor: Tensor) -> int:
    """The number of a tensor's storage, as `uses` takes it; it is valid while the tensor lives. This creates the
    storage's Python object, so that asking for it later does not change the count."""
    number: int = tensor.untyped_storage()._cdata
    return number


@functools.cache
def keep_freed_memory() -> None:
    """Let the process keep what a call frees for the next one, up to twice `LARGE`.

    glibc gives the end of the heap back to the system once it is twice as long as the largest block freed so far that
    had pages of its own. A process that has freed none of some size loses the memory of each call, and the next call
    gets it back page by page. Freeing one large block, of which no page is touched, prevents it.
    """
    torch.UntypedStorage(LARGE)


def on_host(tensor: Tensor) -> bool:
    """Whether a tensor is in the memory of the process, so that its numbers are there once a call has returned."""
    return tensor.device.type == HOST.type


def copy_all(targets: list[Tensor], values: list[Tensor]) -> None:
    """Copy values into tensors of the same dtypes, in few launches, unseen by autograd."""
    before = torch.is_grad_enabled()  # not a context manager, which takes longer than launching a short copy
    _C._set_grad_enabled(False)
    try:
        torch._foreach_copy_(targets, values)
    finally:
        _C._set_grad_enabled(before)


@attrs.frozen
class Layout:
    """How a tensor lies in its storage, and whether it is read conjugated or negated."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    conjugated: bool
    negated: bool

    @classmethod
    def of(cls, tensor: Tensor) -> Layout:
        """That of a tensor."""
        sizes = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
        return cls(tensor.dtype, *sizes, tensor.is_conj(), tensor.is_neg())


def storage_at(address: int, size: int, device: torch.device) -> torch.UntypedStorage:
    """A storage of `size` bytes at an address, which does not own that memory."""
    made: torch.UntypedStorage = _C._construct_storage_from_data_pointer(address, device, size)
    return made


def tensor_in(storage: torch.UntypedStorage, layout: Layout) -> Tensor:
    """A tensor in this storage."""
    made = torch.empty(0, dtype=layout.dtype, device=storage.device)
    made.set_(storage, layout.offset, layout.shape, layout.strides)
    if layout.conjugated:
        made = made.conj()
    return torch._neg_view(made) if layout.negated else made
