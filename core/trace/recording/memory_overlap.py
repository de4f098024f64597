"""Operators in place that refuse what they are given for the memory it lies in: what is written twice, or read as well.

Tensors without numbers are never refused, and a back end would compute something. The graph ends before such a call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from armature.torch_abi.fake import of_transform
from armature.trace.values.base import Args, Kwargs, Value

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace

# They change what a tensor is, not its numbers.
LAYOUTS = frozenset({
    "t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "detach_", "requires_grad_", "resize_",
    "resize_as_", "set_", "set_data_", "as_strided_", "rename_", "share_memory_",
})  # fmt: skip


def check(tracer: Trace, fn: Callable[..., Any] | str, args: Args, kwargs: Kwargs, target: Value) -> None:
    """Break the graph where an operator raises for the memory of an argument that it writes to, and of the others."""
    name = fn if isinstance(fn, str) else getattr(fn, "__name__", "")
    fakes: list[Any] = [value.as_fake(tracer) for value in (*args, *kwargs.values()) if value.is_tensor]
    written: Any = target.as_fake(tracer)
    if not isinstance(written, torch.Tensor) or name in LAYOUTS or not _is_strided(written):
        return
    memory = _memory(written)
    others = [one for one in fakes if one is not written and _is_strided(one) and _memory(one) == memory]
    if fn is operator.setitem:
        if not others and not _repeats(written):
            return
        written = _part(tracer, written, args[1])
        if written is None or _memory(written) != memory:  # written by positions
            return
    if _repeats(written) or any(_overlap(written, other) for other in others):
        tracer.graph_break("overlapping-write", operation=name)


def _part(tracer: Trace, written: torch.Tensor, index: Value) -> torch.Tensor | None:
    """The view that an assignment to items writes to."""
    try:
        part = tracer.fakes.getitem(written, index.as_fake(tracer))
    except Exception:  # the assignment says so itself
        return None
    return part if isinstance(part, torch.Tensor) else None


def _is_strided(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested and not of_transform(tensor)


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _repeats(tensor: torch.Tensor) -> bool:
    """Whether elements of the tensor surely share memory."""
    return any(
        isinstance(stride, int) and stride == 0 and not (isinstance(size, int) and size <= 1)
        for size, stride in zip(tensor.shape, tensor.stride())
    )


def _overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors in one memory overlap in part, as ATen tells: of dense ones only."""
    if first.numel() == 0 or second.numel() == 0 or not (_is_dense(first) and _is_dense(second)):
        return False
    (begin, end), (other_begin, other_end) = _extent(first), _extent(second)
    if begin == other_begin and end == other_end:
        return first.stride() != second.stride()
    return bool(begin < other_end and other_begin < end)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements lie side by side, in whatever order."""
    expected: Any = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected = expected * size
    return True


def _extent(tensor: torch.Tensor) -> tuple[Any, Any]:
    """The first byte, and the one after the last."""
    begin = tensor.storage_offset() * tensor.element_size()
    return begin, begin + tensor.numel() * tensor.element_size()
