"""Cumulative sums and products, against eager."""

from __future__ import annotations

import pytest
import torch

from armature.lower.data import ExternCall, Loop
from armature.testing.lowering_kit import Kit

aten = torch.ops.aten
OPERATORS = (aten.cumsum.default, aten.cumprod.default)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", OPERATORS, ids=str)
def test_along_each_axis(kit: Kit, op: torch._ops.OpOverload, dtype: torch.dtype) -> None:
    x = (torch.rand(3, 4, 5) + 0.5).to(dtype)
    for axis in (0, 1, 2, -1):
        kit.check(op, x, axis)
    kit.check(op, x.permute(2, 0, 1), 1)
    kit.check(op, x, 0, dtype=torch.float64)


@pytest.mark.parametrize("op", OPERATORS, ids=str)
def test_of_one_point(kit: Kit, op: torch._ops.OpOverload) -> None:
    kit.check(op, torch.randn(()), 0)
    kit.check(op, torch.randn(4, 1, 3), 1)


def test_a_long_row_alone_stays_with_aten(kit: Kit) -> None:
    """One thread of work would walk it alone; ATen cuts it."""
    few = kit.lower(aten.cumsum.default, torch.randn(2, 5000), 1)
    many = kit.lower(aten.cumsum.default, torch.randn(40, 5000), 1)
    assert isinstance(few.nodes[0], ExternCall) and isinstance(many.nodes[0], Loop)
