"""What changes a tensor itself, its memory or its place in autograd's graph, in the form of functions for a graph."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import torch


def set_data_(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """`tensor.data = data`: the tensor has the memory, dtype, sizes and strides of the other from here on."""
    tensor.data = data


def is_parameter(fake: torch.Tensor) -> bool:
    """Whether a fake stands for an `nn.Parameter`: torch marks those that are of another class."""
    return bool(fake.__dict__.get("_is_param", False))


def memory_of(tensor: torch.Tensor) -> torch.UntypedStorage:
    """Where the numbers of a tensor stand; of one that a transform of torch.func has made, of the one inside."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor.untyped_storage()


@attrs.frozen(eq=False)
class Kept:
    """What a tensor was: another one over its memory, and whether it required gradients."""

    tensor: torch.Tensor
    data: torch.Tensor
    requires_grad: bool


def keep(tensors: Iterable[torch.Tensor]) -> tuple[Kept, ...]:
    """What the tensors are now."""
    return tuple(Kept(tensor, tensor.detach(), tensor.requires_grad) for tensor in tensors)


def put_back(kept: Iterable[Kept]) -> None:
    """Make the tensors what they were; the numbers in their memory stay."""
    for one in kept:
        one.tensor.data = one.data
        if one.tensor.requires_grad is not one.requires_grad:
            one.tensor.requires_grad_(one.requires_grad)
