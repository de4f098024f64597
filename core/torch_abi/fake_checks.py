"""Seam to what torch's kernels refuse and its tensors without numbers take: operands of dtypes that do not go together.

A refused call breaks the graph, and the kernel then says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from armature.torch_abi.fake_layouts import NARROW

aten = torch.ops.aten
Check = Callable[[Sequence[Any]], bool]
INDICES = frozenset((torch.int32, torch.int64))

VECTOR_NORM: object = aten.linalg_vector_norm.default


def with_axes_from_front(func: object, args: Sequence[Any]) -> Sequence[Any]:
    """The arguments of an operator, with the axes of a vector norm counted from the front: of an axis of size 1 counted
    from the back, torch 2.11 forgets that it goes."""
    if func is not VECTOR_NORM or len(args) < 3 or not args[2] or min(args[2]) >= 0:
        return args
    rank = max(args[0].dim(), 1)
    if any(not -rank <= axis < rank for axis in args[2]):  # for torch to refuse
        return args
    return (*args[:2], [axis % rank for axis in args[2]], *args[3:])


def same(*places: int) -> Check:
    """Whether the arguments at these places are of one dtype, those of them that are given."""

    def check(args: Sequence[Any]) -> bool:
        given = (args[place] for place in places if place < len(args))
        return len({one.dtype for one in given if isinstance(one, torch.Tensor)}) < 2

    return check


def as_input(*places: int) -> Check:
    """Whether the parameters at these places are of the first argument's dtype, or float32 beside a narrow one. Kernels
    of other devices than a CPU say for themselves."""

    def check(args: Sequence[Any]) -> bool:
        allowed = {args[0].dtype, torch.float32} if args[0].dtype in NARROW else {args[0].dtype}
        given = (args[place] for place in places if place < len(args))
        return args[0].device.type != "cpu" or all(
            one.dtype in allowed for one in given if isinstance(one, torch.Tensor)
        )

    return check


def values_to_put(args: Sequence[Any]) -> bool:
    """Whether values are of the dtype of what they are put into; one number may be put under a mask whatever it is."""
    target, indices, values = args[:3]
    masked = any(isinstance(one, torch.Tensor) and one.dtype in (torch.bool, torch.uint8) for one in indices)
    return target.dtype == values.dtype or (masked and values.dim() <= 1 and values.numel() == 1)


def index_is_integer(args: Sequence[Any]) -> bool:
    """Whether the third argument is an index."""
    return args[2].dtype in INDICES


CHECKS: Mapping[Any, Check] = {
    **dict.fromkeys((aten.index_put.default, aten.index_put_.default), values_to_put),
    **dict.fromkeys((aten.index_add.default, aten.index_add_.default), same(0, 3)),
    **dict.fromkeys((aten.index_copy.default, aten.index_copy_.default), same(0, 3)),
    aten.index_select.default: index_is_integer,
    aten.huber_loss.default: same(0, 1),  # its way back refuses them
    aten.binary_cross_entropy.default: same(0, 1),
    aten.nll_loss_forward.default: same(0, 2),
    aten.nll_loss2d_forward.default: same(0, 2),
    aten.native_layer_norm.default: as_input(2, 3),
    **dict.fromkeys(
        (
            aten.native_batch_norm.default,
            aten._native_batch_norm_legit.default,
            aten._native_batch_norm_legit_functional.default,
            aten._native_batch_norm_legit.no_stats,
            aten._native_batch_norm_legit_no_training.default,
        ),
        as_input(1, 2, 3, 4),
    ),
}


def check_dtypes(op: Any, args: Sequence[Any]) -> None:
    """Raise RuntimeError where the kernel of an operator refuses its arguments for their dtypes."""
    check = CHECKS.get(op)
    if check is not None and not check(args):
        dtypes = ", ".join(str(one.dtype) for one in args if isinstance(one, torch.Tensor))
        raise RuntimeError(f"{op} takes no tensors of {dtypes} together")
