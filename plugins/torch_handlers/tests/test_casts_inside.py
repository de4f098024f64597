"""Operators whose kernels call others that autocast casts for: the same dtypes as in eager mode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from armature.api import public as api

LAYER = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
X = torch.linspace(-1, 1, 16).reshape(4, 4) + torch.eye(4)
SIZES = [(2, 3, 4, 5), (2, 3, 1, 5), (2, 1, 2, 3, 4)]


def grid(size: tuple[int, ...], align_corners: bool) -> Callable[[Tensor], Tensor]:
    side = len(size) - 2
    return lambda x: F.affine_grid(x[:side, : side + 1].expand(size[0], -1, -1), size, align_corners) * 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_grids(size: tuple[int, ...], align_corners: bool, dtype: torch.dtype) -> None:
    fn = grid(size, align_corners)
    with torch.autocast("cpu", dtype):
        torch.testing.assert_close(api.compile(fn, fullgraph=True)(X), fn(X))


def test_gradients_of_a_grid() -> None:
    made = []
    for fn in (grid(SIZES[2], False), api.compile(grid(SIZES[2], False), fullgraph=True)):
        x = X.clone().requires_grad_()
        with torch.autocast("cpu"):
            y = fn(x)
        made.append(torch.autograd.grad(y.float().square().sum(), x))
    torch.testing.assert_close(made[1], made[0], rtol=1e-2, atol=1e-2)  # sums of numbers with 8 bits


@pytest.mark.parametrize("size", SIZES)
def test_grids_without_autocast_are_the_operator(size: tuple[int, ...]) -> None:
    assert torch.equal(api.compile(grid(size, False), backend="eager")(X), grid(size, False)(X))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.linalg.pinv(x) + 1,
        lambda x: x.pinverse() + 1,
        lambda x: LAYER(x[None]) + 1,
        lambda x: LAYER.self_attn(x[None], x[None], x[None])[0] + 1,
    ],
)
def test_dtypes_of_eager_mode(fn: Callable[[Tensor], Tensor]) -> None:
    compiled = api.compile(fn)
    for enabled in (True, False):
        with torch.no_grad(), torch.autocast("cpu", enabled=enabled):
            torch.testing.assert_close(compiled(X), fn(X))
