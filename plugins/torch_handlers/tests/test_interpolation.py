"""`interpolate` with scale factors that vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import armature

CALLS: tuple[Callable[[Tensor, int], Tensor], ...] = (
    lambda x, n: F.interpolate(x, scale_factor=n),
    lambda x, n: F.interpolate(x, None, n, "bilinear"),
    lambda x, n: F.interpolate(input=x, scale_factor=(n, 2), mode="bicubic"),
    lambda x, n: F.interpolate(x, scale_factor=[n + 1, n], recompute_scale_factor=True),
    lambda x, n: F.interpolate(x, (n * 4, n)),
)


@pytest.mark.parametrize("fn", CALLS)
def test_whole_numbers_that_vary(fn: Callable[..., Any]) -> None:
    armature.reset()
    compiled = armature.compile(fn, backend="eager", fullgraph=True, dynamic=True)
    x = torch.linspace(-1, 1, 24).view(1, 2, 3, 4)
    for number in (2, 3, 4):
        torch.testing.assert_close(compiled(x, number), fn(x, number))
