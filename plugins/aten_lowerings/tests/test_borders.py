"""Reflected and repeated borders."""

from __future__ import annotations

import pytest
import torch

from armature.testing.lowering_kit import Kit

aten = torch.ops.aten
SHAPES = {1: (2, 3, 20), 2: (2, 3, 5, 20), 3: (2, 3, 4, 5, 20)}


@pytest.mark.parametrize("kind", ["reflection", "replication"])
@pytest.mark.parametrize("axes", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_borders(kit: Kit, kind: str, axes: int, dtype: torch.dtype) -> None:
    x = (torch.randn(SHAPES[axes]) * 9).to(dtype)
    op = getattr(aten, f"{kind}_pad{axes}d").default
    if not (dtype == torch.int64 and kind == "replication"):  # eager has none
        kit.check(op, x, [3, 2, 1, 0, 2, 3][: 2 * axes])
        kit.check(op, x[0], [0, 1, 2, 2, 0, 0][: 2 * axes])
        kit.check(op, x.transpose(0, 1), [1] * 2 * axes)


@pytest.mark.parametrize("kind", ["reflection", "replication"])
def test_borders_of_channels_last(kit: Kit, kind: str) -> None:
    x = torch.randn(2, 3, 5, 20).to(memory_format=torch.channels_last)
    kit.check(getattr(aten, f"{kind}_pad2d").default, x, [3, 2, 1, 0])
