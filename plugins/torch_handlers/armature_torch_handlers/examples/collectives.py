"""Collectives of torch.distributed, with one process."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def with_one_process(fn: Any, *args: Any) -> object:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        return fn(*args)
    finally:
        dist.destroy_process_group()


class Labelled(Tensor):
    """A tensor of a class of its own."""


# Only NCCL can do it.
DOUBLED = dist._make_nccl_premul_sum(2.0) if dist.is_available() else None  # type: ignore[attr-defined]


def reduced_sum(x: Tensor) -> object:
    y = x + 1
    dist.all_reduce(y)
    return y * 2


def collective(x: Tensor) -> object:
    parts = x.new_empty(1, 3)
    dist.all_gather_into_tensor(parts, x)
    return parts * 2


collective_called = with_one_process
collective_mended = reduced_sum


def collective_async(x: Tensor) -> object:
    y = x + 1
    dist.all_reduce(y, async_op=True).wait()
    return y * 2


collective_async_called = with_one_process
collective_async_mended = reduced_sum


def collective_group(x: Tensor) -> object:
    y = x + 1
    dist.all_reduce(y, group=dist.GroupMember.NON_GROUP_MEMBER)
    return y * 2


collective_group_called = with_one_process
collective_group_mended = reduced_sum


def collective_argument(x: Tensor) -> object:
    y = (x + 1).as_subclass(Labelled)
    dist.all_reduce(y)
    return y * 2


collective_argument_called = with_one_process
collective_argument_mended = reduced_sum


def collective_layout(x: Tensor) -> object:
    y = (x + 1).t()
    dist.all_reduce(y)
    return y * 2


collective_layout_called = with_one_process
collective_layout_mended = reduced_sum


def collective_gradient(x: Tensor) -> object:
    y = x * 2
    dist.all_reduce(y)
    return y + 1


collective_gradient_called = with_one_process


def collective_gradient_inputs() -> tuple[object, ...]:
    return (torch.ones(2, requires_grad=True),)


def detached(x: Tensor) -> object:
    y = (x * 2).detach()
    dist.all_reduce(y)
    return y + 1


collective_gradient_mended = detached


def collective_reduction(x: Tensor) -> object:
    y = x + 1
    try:
        dist.all_reduce(y, op=DOUBLED)
    except RuntimeError:
        return y
    return y * 2


collective_reduction_called = with_one_process
collective_reduction_mended = reduced_sum
