"""Reflected and repeated borders."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature
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


@pytest.mark.parametrize("kind", ["reflection", "replication"])
@pytest.mark.parametrize("axes", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients_of_borders(kit: Kit, kind: str, axes: int, dtype: torch.dtype) -> None:
    backward = getattr(aten, f"{kind}_pad{axes}d_backward").default
    x = torch.randn(SHAPES[axes]).to(dtype)
    for borders in ([1, 0, 0, 2, 0, 0], [1] * 6, [2, 1, 1, 0, 0, 0], [4, 3, 3, 2, 2, 3], [0] * 6):
        padding = borders[: 2 * axes]
        grad = torch.randn_like(getattr(aten, f"{kind}_pad{axes}d").default(x, padding))
        grad[..., -1] = math.nan
        many = axes == 3 or 4 in borders
        kit.check(backward, grad, x, padding, extern=many or kind == "reflection")
        kit.check(backward, grad.repeat_interleave(2, -1)[..., ::2], x, padding, extern=many)
        if axes == 2:
            kit.check(backward, grad[0], x[0], padding, extern=many or kind == "reflection")
            last = [one.to(memory_format=torch.channels_last) for one in (grad, x)]
            kit.check(backward, *last, padding, extern=many)


def test_gradients_of_borders_in_a_program() -> None:
    for mode in ("reflect", "replicate"):
        armature.reset()

        def program(x: Tensor, mode: str = mode) -> Tensor:
            return F.pad(x.sin(), (1, 1, 1, 1), mode=mode).cos()

        ours = torch.randn(2, 3, 6, 7, requires_grad=True)
        theirs = ours.detach().clone().requires_grad_()
        armature.compile(program, fullgraph=True)(ours).square().sum().backward()
        program(theirs).square().sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_repeated_borders_of_negative_width_crop(kit: Kit, dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 5, 20).to(dtype)
    for padding in ([-1, 2, 1, -2], [3, -4, -2, -2], [-3, -5, 0, 0]):
        kit.check(aten.replication_pad2d.default, x, padding)
        kit.check(aten.replication_pad2d.default, x.contiguous(memory_format=torch.channels_last), padding)
    kit.check(aten.replication_pad1d.default, x[0], [-19, 3])
    kit.check(aten.replication_pad1d.default, x[0], [-20, 23], extern=True)  # all of it is cropped
    kit.check(aten.replication_pad3d.default, x, [1, -2, -1, 1, 0, -1])
