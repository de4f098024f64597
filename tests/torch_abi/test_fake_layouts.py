"""Results of tensors without numbers lie as those of torch's kernels do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from armature.torch_abi.fake import FakeWorld
from armature.torch_abi.fake_layouts import LAYOUTS

aten = torch.ops.aten
INPUTS: dict[str, Callable[[], Tensor]] = {
    "row-major": lambda: torch.rand(2, 4, 3, 5),
    "transposed": lambda: torch.rand(5, 4, 3, 2).transpose(0, 3),
    "permuted": lambda: torch.rand(4, 3, 5, 2).permute(3, 0, 1, 2),
    "channels last": lambda: torch.rand(2, 4, 3, 5).contiguous(memory_format=torch.channels_last),
    "every second": lambda: torch.rand(2, 4, 3, 10)[..., ::2],
    "expanded": lambda: torch.rand(1, 4, 3, 5).expand(2, 4, 3, 5),
}
CALLS: dict[Any, Callable[[Tensor], Any]] = {
    aten.pow.Scalar: lambda x: aten.pow.Scalar(2, x),
    aten.normal.Tensor_Tensor: lambda x: aten.normal.Tensor_Tensor(x, x),
    aten.normal.float_Tensor: lambda x: aten.normal.float_Tensor(0.0, x),
    aten.poisson.default: aten.poisson.default,
    aten.rrelu_with_noise.default: lambda x: aten.rrelu_with_noise.default(x, torch.empty_like(x), training=True),
    aten.rrelu_with_noise_functional.default: lambda x: aten.rrelu_with_noise_functional.default(
        x, torch.empty_like(x, memory_format=torch.contiguous_format), training=True
    ),
    aten.copysign.Tensor: lambda x: aten.copysign.Tensor(x, x.new_ones(5)),
    aten.floor_divide.default: lambda x: aten.floor_divide.default(x, x.new_ones(3, 5)),
    aten.div.Tensor_mode: lambda x: aten.div.Tensor_mode(x, x.new_ones(()), rounding_mode="floor"),
    aten.nll_loss2d_forward.default: lambda x: aten.nll_loss2d_forward.default(
        x, torch.ones_like(x[:, 0], dtype=torch.int64), None, 0, -100
    ),
    aten.max_unpool2d.default: lambda x: aten.max_unpool2d.default(x, torch.zeros_like(x, dtype=torch.int64), [6, 9]),
    aten.channel_shuffle.default: lambda x: aten.channel_shuffle.default(x, 2),
    aten.native_dropout_backward.default: lambda x: aten.native_dropout_backward.default(x, x > 0.5, 2.0),
    aten.native_batch_norm.default: lambda x: aten.native_batch_norm.default(
        x, None, None, x.new_ones(4), x.new_ones(4), True, 0.1, 1e-5
    ),
    aten._native_batch_norm_legit.default: lambda x: aten._native_batch_norm_legit.default(
        x, None, None, x.new_ones(4), x.new_ones(4), True, 0.1, 1e-5
    ),
    aten._native_batch_norm_legit.no_stats: lambda x: aten._native_batch_norm_legit.no_stats(
        x, None, None, True, 0.1, 1e-5
    ),
    aten._native_batch_norm_legit_no_training.default: lambda x: aten._native_batch_norm_legit_no_training.default(
        x, None, None, x.new_ones(4), x.new_ones(4), 0.1, 1e-5
    ),
    aten._native_batch_norm_legit_functional.default: lambda x: aten._native_batch_norm_legit_functional.default(
        x, None, None, x.new_ones(4), x.new_ones(4), True, 0.1, 1e-5
    ),
}

# What the program called, where that lies otherwise than the functional form of it gives.
PROGRAMS = {aten.rrelu_with_noise_functional.default: CALLS[aten.rrelu_with_noise.default]}


def first(result: Any) -> Tensor:
    found = result[0] if isinstance(result, tuple) else result
    assert isinstance(found, Tensor)
    return found


def test_every_rule_has_a_call_here() -> None:
    assert CALLS.keys() == LAYOUTS.keys()


@pytest.mark.parametrize("layout", INPUTS)
@pytest.mark.parametrize("op", CALLS, ids=str)
def test_layouts_are_those_of_the_kernels(op: Any, layout: str) -> None:
    x = INPUTS[layout]()
    real = first(PROGRAMS.get(op, CALLS[op])(x))
    world = FakeWorld()
    fake = world.of(x)
    with world.mode:
        told = first(CALLS[op](fake))
    assert (told.shape, told.stride(), told.dtype) == (real.shape, real.stride(), real.dtype)
