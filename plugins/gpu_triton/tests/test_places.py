"""Elements at computed places, through Triton's interpreter: views by strides, windows at random places, divisors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import armature
from armature.pipeline.session import session


def test_windows_at_random_places(interpreted: None) -> None:
    x, samples = torch.randn(2, 3, 9, 11), torch.rand(2, 3, 2)

    def program(x: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
        values, places = F.fractional_max_pool2d(x, 2, (4, 5), return_indices=True, _random_samples=samples)
        return values.sin(), places

    for found, expected in zip(armature.compile(program, fullgraph=True)(x, samples), program(x, samples), strict=True):
        torch.testing.assert_close(found, expected)
    assert session().totals().extern == 0


def test_views_by_strides(interpreted: None) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        windows = x.as_strided((4, 5), (3, 2), 1).cos()
        return windows, torch.as_strided_scatter(x * 2, windows[0], (5,), (4,), 3)

    x = torch.randn(6, 5)
    for found, expected in zip(armature.compile(program, fullgraph=True)(x), program(x), strict=True):
        torch.testing.assert_close(found, expected)
    assert session().totals().extern == 0


def test_quotients_of_integers(interpreted: None) -> None:
    def program(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x // y, x % y, torch.fmod(x, y)

    x, y = torch.arange(-20, 20), torch.arange(-20, 20) * 3 + 1
    for found, expected in zip(armature.compile(program, fullgraph=True)(x, y), program(x, y), strict=True):
        assert torch.equal(found, expected)
    assert session().totals().extern == 0
