"""What changes a tensor itself, its memory or its place in autograd's graph, in the form of functions for a graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import torch


def set_data_(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """`tensor.data = data`: the tensor has the memory, dtype, sizes and strides of the other from here on."""
    tensor.data = data


def is_parameter(fake: torch.Tensor) -> bool:
    """Whether a fake stands for an `nn.Parameter`: torch marks those that are of another class."""
    return bool(fake.__dict__.get("_is_param", False))


def is_leaf(tensor: torch.Tensor) -> bool:
    """Whether gradients are collected in a tensor, if at all; False for a view of which torch refuses to say so, since
    its base has changed."""
    try:
        return tensor.is_leaf
    except RuntimeError:
        return False


def is_view(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view."""
    return tensor._is_view()


def has_history(tensor: torch.Tensor) -> bool:
    """Whether autograd remembers what was written to a tensor: it would not forget it with the memory."""
    return bool(tensor.requires_grad) and not tensor.is_leaf


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor inside of one that transforms of torch.func have made; any other tensor itself."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def memory_of(tensor: torch.Tensor) -> torch.UntypedStorage:
    """Where the numbers of a tensor stand; of one that a transform of torch.func has made, of the one inside."""
    return unwrapped(tensor).untyped_storage()


def is_zero_tensor(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of forward mode's zeros, which have no memory; the fakes of such tensors don't say so."""
    return bool(tensor._is_zerotensor())


def with_memory(zeros: torch.Tensor) -> torch.Tensor:
    """The same numbers and strides in memory."""
    made = torch.empty_strided(zeros.shape, zeros.stride(), dtype=zeros.dtype, device=zeros.device)
    return made.zero_()


@attrs.frozen(eq=False)
class Snapshot:
    """What a tensor was: another one over its memory, and whether it required gradients."""

    tensor: torch.Tensor
    data: torch.Tensor
    requires_grad: bool


def snapshot(tensors: Iterable[torch.Tensor]) -> tuple[Snapshot, ...]:
    """What the tensors are now."""
    return tuple(Snapshot(tensor, tensor.detach(), tensor.requires_grad) for tensor in tensors)


def restore(snapshots: Iterable[Snapshot]) -> None:
    """Make the tensors what they were; the numbers in their memory stay."""
    for one in snapshots:
        one.tensor.data = one.data
        if one.tensor.requires_grad is not one.requires_grad:
            one.tensor.requires_grad_(one.requires_grad)


def come_to_all(results: Iterable[object], tensors: Iterable[torch.Tensor]) -> bool:
    """Whether gradients of the results come to each of the tensors."""
    waiting = [t.grad_fn for t in results if isinstance(t, torch.Tensor) and t.grad_fn is not None]
    steps: set[Any] = set()  # kept, since each is the same object only while somebody has it
    while waiting:
        step = waiting.pop()
        if step not in steps:
            steps.add(step)
            waiting += [before for before, _ in step.next_functions if before is not None]
    leaves = {id(step.variable) for step in steps if hasattr(step, "variable")}
    return all(id(t) in leaves if t.grad_fn is None else t.grad_fn in steps for t in tensors)
