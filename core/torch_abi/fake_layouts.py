"""Seam to what torch says of tensors without numbers: the layout of results, where torch says another than its kernels
give. The rules behind it are written in terms of other operators, and follow those."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

aten = torch.ops.aten
Rule = Callable[[Sequence[Any], Any], Any]


def contiguous(args: Sequence[Any], result: Any) -> Any:
    """Row-major, whatever the arguments are."""
    return result.contiguous()


def first_contiguous(args: Sequence[Any], result: Any) -> Any:
    """The first of several results is row-major."""
    return (result[0].contiguous(), *result[1:])


def as_sum(args: Sequence[Any], result: Any) -> Any:
    """As the sum of the first two arguments lies: the kernel goes over both at once."""
    like = aten.add.Tensor(args[0], args[1])
    return result if like.stride() == result.stride() else torch.empty_like(like, dtype=result.dtype)


def sum_on_cpu(args: Sequence[Any], result: Any) -> Any:
    """The same on a CPU; torch knows the kernels of others."""
    return as_sum(args, result) if result.device.type == "cpu" else result


def in_format(args: Sequence[Any], result: Any) -> Any:
    """On a CPU with channels last where the first argument has them so, else row-major."""
    if result.device.type != "cpu":
        return result
    return result.contiguous(memory_format=suggest_memory_format(args[0]))


def first_in_format(args: Sequence[Any], result: Any) -> Any:
    """The same for the first of several results."""
    return (in_format(args, result[0]), *result[1:])


LAYOUTS: Mapping[torch._ops.OpOverload, Rule] = {
    aten.pow.Scalar: contiguous,
    aten.normal.Tensor_Tensor: contiguous,
    aten.normal.float_Tensor: contiguous,
    aten.poisson.default: contiguous,
    aten.rrelu_with_noise.default: contiguous,
    aten.rrelu_with_noise_functional.default: first_contiguous,
    aten.copysign.Tensor: as_sum,
    aten.floor_divide.default: as_sum,
    aten.div.Tensor_mode: as_sum,
    aten.nll_loss2d_forward.default: first_contiguous,
    aten.max_unpool2d.default: in_format,
    aten.channel_shuffle.default: in_format,
    aten.native_dropout_backward.default: sum_on_cpu,
    aten.native_batch_norm.default: first_in_format,
    aten._native_batch_norm_legit.default: first_in_format,
    aten._native_batch_norm_legit.no_stats: first_in_format,
    aten._native_batch_norm_legit_no_training.default: first_in_format,
    aten._native_batch_norm_legit_functional.default: first_in_format,
}
"""What the layout of an operator's results is, given its arguments and what torch says. Called in the fake mode."""
