"""Maximum pooling at places that random samples choose, against eager."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import armature
from armature.pipeline.session import session
from armature.testing.lowering_kit import Kit

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def images(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Images with equal and undefined values, and the samples of their channels."""
    torch.manual_seed(0)
    x = torch.randint(-9, 9, shape).to(dtype)
    x.view(-1)[:: x.numel() // 3] = math.nan
    axes = 2 if len(shape) in (3, 4) and shape[0] != 1 else 3
    return x, torch.rand(shape[0], shape[1], axes, dtype=dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("kernel", "size"), [((2, 3), (4, 5)), ((1, 1), (9, 11)), ((3, 2), (1, 3)), ((2, 2), (7, 9))])
def test_of_images(kit: Kit, dtype: torch.dtype, kernel: tuple[int, int], size: tuple[int, int]) -> None:
    x, samples = images((2, 3, 9, 11), dtype)
    kit.check(aten.fractional_max_pool2d.default, x, kernel, size, samples)
    kit.check(aten.fractional_max_pool2d.default, x[1], kernel, size, samples[1:])
    last = x.contiguous(memory_format=torch.channels_last)
    kit.check(aten.fractional_max_pool2d.default, last, kernel, size, samples)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_of_volumes(kit: Kit, dtype: torch.dtype) -> None:
    x, _ = images((2, 3, 6, 9, 8), dtype)
    samples = torch.rand(2, 3, 3, dtype=dtype)
    kit.check(aten.fractional_max_pool3d.default, x, (2, 3, 2), (3, 5, 4), samples)
    kit.check(aten.fractional_max_pool3d.default, x[0], (3, 3, 3), (2, 4, 4), samples[:1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_training(dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 9, 11, dtype=dtype, requires_grad=True)
    samples = torch.rand(2, 3, 2, dtype=dtype)

    def program(x: Tensor, samples: Tensor) -> Tensor:
        return F.fractional_max_pool2d(x, (2, 3), (4, 5), _random_samples=samples).sin()

    armature.reset()
    found, expected = armature.compile(program, fullgraph=True)(x, samples), program(x, samples)
    torch.testing.assert_close(found, expected)
    (gradient,) = torch.autograd.grad(found.sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), x)[0])
    assert session().totals().extern == 1  # the gradient


def test_sizes_that_vary() -> None:
    def program(x: Tensor, samples: Tensor) -> Tensor:
        return F.fractional_max_pool3d(x, 2, (3, 3, 4), _random_samples=samples)

    armature.reset()
    compiled = armature.compile(program, fullgraph=True, dynamic=True)
    for size in (7, 9, 12):
        x, samples = torch.randn(2, 3, size, size + 1, 8), torch.rand(2, 3, 3)
        assert torch.equal(compiled(x, samples), program(x, samples))
    assert session().totals().extern == 0
