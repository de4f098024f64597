"""Activation functions and their gradients, against eager."""

from __future__ import annotations

import pytest
import torch

from armature.testing.lowering_kit import Kit
from armature_aten_lowerings import activations

aten = torch.ops.aten


@pytest.mark.parametrize("op", list(activations.FORMULAS), ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_formulas(kit: Kit, op: torch._ops.OpOverload, dtype: torch.dtype) -> None:
    count = sum(isinstance(a.type, torch.TensorType) for a in op._schema.arguments)
    kit.check(op, *(torch.randn(7, 5).mul(3).to(dtype) for _ in range(count)))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(kit: Kit, approximate: str) -> None:
    x = torch.randn(30) * 3
    kit.check(aten.gelu.default, x, approximate=approximate)
    kit.check(aten.gelu_backward.default, torch.randn(30), x, approximate=approximate)


def test_with_numbers(kit: Kit) -> None:
    g, x = torch.randn(30), torch.randn(30) * 3
    kit.check(aten.threshold_backward.default, g, x.relu(), 0)
    kit.check(aten.threshold.default, x, 0.5, 7)
    kit.check(aten.hardtanh.default, x, -1, 1)
    kit.check(aten.hardtanh_backward.default, g, x, -1, 1)
    kit.check(aten.leaky_relu.default, x, 0.2)
    kit.check(aten.leaky_relu_backward.default, g, x, 0.2, False)
    kit.check(aten.elu.default, x, 1.5, 1.1, 0.9)
    kit.check(aten.elu_backward.default, g, 1.5, 1.1, 0.9, False, x)
    kit.check(aten.elu_backward.default, g, 1.5, 1.1, 0.9, True, x)
    kit.check(aten.softplus.default, x * 10, 2, 20)
    kit.check(aten.softplus_backward.default, g, x * 10, 2, 20)


def test_nan_is_passed_on(kit: Kit) -> None:
    x = torch.tensor([float("nan"), 1.0, -1.0])
    for op in (aten.relu.default, aten.silu.default, aten.gelu.default, aten.hardswish.default):
        kit.check(op, x)
