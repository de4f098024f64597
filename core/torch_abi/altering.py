"""Operations on a tensor's state (its memory, its place in autograd's graph), as functions that a graph can call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import torch


def set_data_(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """`tensor.data = data`: from now on the tensor has the other's memory, dtype, sizes and strides."""
    tensor.data = data


def is_parameter(fake: torch.Tensor) -> bool:
    """Whether a fake represents an `nn.Parameter`: torch marks those of other classes."""
    return bool(fake.__dict__.get("_is_param", False))


def is_leaf(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a leaf; False for a view that torch refuses to ask because its base has changed."""
    try:
        return tensor.is_leaf
    except RuntimeError:
        return False


def is_cut_off(tensor: torch.Tensor) -> bool:
    """Whether autograd can't tell the tensor's state: a view from `unbind`, after a change of its base."""
    try:
        tensor.is_leaf  # noqa: B018 - reading it raises
    except RuntimeError:
        return True
    return False


def is_view(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view."""
    return tensor._is_view()


def has_history(tensor: torch.Tensor) -> bool:
    """Whether autograd records writes to the tensor; replacing its memory would not undo that."""
    return bool(tensor.requires_grad) and not tensor.is_leaf


@attrs.frozen(eq=False)
class History:
    """A tensor's place in autograd's graph: what has computed it, and another tensor over the same memory, made from it
    but no view of it, so that writes to the memory change nothing of that one's history."""

    tensor: torch.Tensor
    before: Any
    other: torch.Tensor | None

    def restore(self) -> None:
        """Give the tensor its place again if writes have moved it. Its elements are as they were."""
        if self.tensor.grad_fn is self.before:
            return
        with torch.inference_mode(False), torch.enable_grad():
            self.tensor.detach_()
            if self.other is not None:
                self.tensor.copy_(self.other)


def history_of(tensor: torch.Tensor) -> History | None:
    """A tensor's history, or None: a view has that of its base, and a gradient that is to be retained would still be
    that of what the tensor was."""
    if tensor._is_view() or tensor.retains_grad:
        return None
    if tensor.grad_fn is None:
        return History(tensor, None, None)
    with torch.inference_mode(False), torch.enable_grad():
        return History(tensor, tensor.grad_fn, torch.ops.aten._unsafe_view.default(tensor, tensor.shape))


def can_restore_histories(inputs: Sequence[object], positions: Iterable[int]) -> bool:
    """Whether the inputs at these positions have histories that can be restored, and no other input has their memory,
    and with it a history that depends on theirs."""
    tensors = {k: each for k, each in enumerate(inputs) if isinstance(each, torch.Tensor)}
    storages = [each.untyped_storage()._cdata for each in tensors.values() if each.layout is torch.strided]
    return all(
        k in tensors and history_of(tensors[k]) is not None and storages.count(memory_of(tensors[k])._cdata) == 1
        for k in positions
    )


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor inside a wrapper of a torch.func transform; any other tensor itself."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def memory_of(tensor: torch.Tensor) -> torch.UntypedStorage:
    """The storage of a tensor; for a wrapper of a torch.func transform, that of the tensor inside."""
    return unwrapped(tensor).untyped_storage()


def is_zero_tensor(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of forward mode's zeros, which have no memory; the fakes of such tensors don't show
    it."""
    return bool(tensor._is_zerotensor())


def with_memory(zeros: torch.Tensor) -> torch.Tensor:
    """A copy with memory, with the same values and strides."""
    made = torch.empty_strided(zeros.shape, zeros.stride(), dtype=zeros.dtype, device=zeros.device)
    return made.zero_()


@attrs.frozen(eq=False)
class Snapshot:
    """A tensor's state: another tensor over its memory, and whether it required gradients."""

    tensor: torch.Tensor
    data: torch.Tensor
    requires_grad: bool


def snapshot(tensors: Iterable[torch.Tensor]) -> tuple[Snapshot, ...]:
    """The current state of the tensors."""
    return tuple(Snapshot(tensor, tensor.detach(), tensor.requires_grad) for tensor in tensors)


def restore(snapshots: Iterable[Snapshot]) -> None:
    """Restore the tensors' state; the contents of their memory are unchanged."""
    for one in snapshots:
        one.tensor.data = one.data
        if one.tensor.requires_grad is not one.requires_grad:
            one.tensor.requires_grad_(one.requires_grad)


def reach_all(results: Iterable[object], tensors: Iterable[torch.Tensor]) -> bool:
    """Whether gradients of the results reach each of the tensors."""
    waiting = [t.grad_fn for t in results if isinstance(t, torch.Tensor) and t.grad_fn is not None]
    steps: set[Any] = set()  # holds the nodes, which keep their identity only while somebody refers to them
    while waiting:
        step = waiting.pop()
        if step not in steps:
            steps.add(step)
            waiting += [before for before, _ in step.next_functions if before is not None]
    leaves = {id(step.variable) for step in steps if hasattr(step, "variable")}
    return all(id(t) in leaves if t.grad_fn is None else t.grad_fn in steps for t in tensors)
