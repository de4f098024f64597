"""The memory-overlap checks of torch's kernels: they refuse to write to elements that overlap, or that are also read.

Fake tensors don't check this, and compiled code would compute some result.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch

from armature.torch_abi.fake import of_transform


def writes_numbers(name: str, written: torch.Tensor) -> bool:
    """Whether an in-place operator checks the memory of its target."""
    return is_strided(written) and not changes_view(name)


@functools.lru_cache(maxsize=4096)
def changes_view(name: str) -> bool:
    """Whether the operator of a method in place changes how a tensor looks at its memory, but no elements."""
    packet = getattr(torch.ops.aten, name, None)
    overloads = () if packet is None else [getattr(packet, one) for one in packet.overloads()]
    return any(torch.Tag.inplace_view in overload.tags for overload in overloads)


def sharing(written: torch.Tensor, others: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The other tensors in the same memory."""
    memory = memory_of(written)
    return [one for one in others if one is not written and is_strided(one) and memory_of(one) == memory]


def refuses(written: torch.Tensor, others: list[torch.Tensor]) -> bool:
    """Whether an in-place operator raises because its target overlaps itself, or other arguments."""
    return repeats(written) or any(overlap(written, other) for other in others)


def is_strided(tensor: torch.Tensor) -> bool:
    """Whether it is a strided tensor with memory, not one of a torch.func transform."""
    return tensor.layout is torch.strided and not tensor.is_nested and not of_transform(tensor)


def memory_of(tensor: torch.Tensor) -> int:
    """Identifies the memory of a tensor."""
    return int(tensor.untyped_storage()._cdata)


def repeats(tensor: torch.Tensor) -> bool:
    """Whether elements of the tensor certainly overlap."""
    return any(
        isinstance(stride, int) and stride == 0 and not (isinstance(size, int) and size <= 1)
        for size, stride in zip(tensor.shape, tensor.stride())
    )


def overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors in one memory overlap partially, by ATen's own test: it covers dense tensors only."""
    if first.numel() == 0 or second.numel() == 0 or not (is_dense(first) and is_dense(second)):
        return False
    (begin, end), (other_begin, other_end) = extent(first), extent(second)
    if begin == other_begin and end == other_end:
        return first.stride() != second.stride()
    return bool(begin < other_end and other_begin < end)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements are contiguous, in any axis order."""
    expected: Any = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected = expected * size
    return True


def extent(tensor: torch.Tensor) -> tuple[Any, Any]:
    """The first byte, and the one after the last."""
    begin = tensor.storage_offset() * tensor.element_size()
    return begin, begin + tensor.numel() * tensor.element_size()
