"""Values that one pass over a row keeps for the next: they are read back as they were, wherever they were computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature

ROWS = 24


def same_along_the_inner_loop(a, b, h):
    gate = torch.sigmoid(a * 1.5 + 1)  # one value for the 64 points of the loop in which it is read
    y = gate[..., None] * h[:, None] + b
    return y, y * torch.rsqrt(y.flatten(1).square().mean(-1) + 1e-5)[:, None, None]


def same_along_the_outer_loop(a, b, h):
    gate = torch.sigmoid(h)
    y = gate[:, None] * a[..., None] + b
    return y, y * torch.rsqrt(y.flatten(1).square().mean(-1) + 1e-5)[:, None, None]


def different_in_both(a, b, h):
    y = torch.sigmoid(b) * a[..., None] + h[:, None]
    return y, y * torch.rsqrt(y.flatten(1).square().mean(-1) + 1e-5)[:, None, None]


def same_in_each_piece(a, b, h):
    chosen = torch.where(
        torch.arange(h.shape[1]) < 20, a[:, :1], a[:, 1:2]
    )  # a condition that the first pass alone has
    gate = torch.sigmoid(chosen)
    return gate / gate.sum(-1, keepdim=True)


def same_in_each_piece_of_columns(a, b, h):
    chosen = torch.where(torch.arange(h.shape[1])[:, None] < 20, h[:1, :ROWS], h[1:2, :ROWS])
    gate = torch.sigmoid(chosen)
    return gate / gate.sum(0, keepdim=True)


def several_values(a, b, h):
    first, second = torch.sigmoid(a), torch.exp(b)
    y = first[..., None] * second + torch.tanh(h)[:, None]
    return y, y - y.flatten(1).mean(-1)[:, None, None], y / y.flatten(1).amax(-1)[:, None, None]


@pytest.mark.parametrize(
    "program",
    [
        same_along_the_inner_loop, same_along_the_outer_loop, different_in_both, same_in_each_piece,
        same_in_each_piece_of_columns, several_values,
    ],
)  # fmt: skip
@pytest.mark.parametrize("width", [64, 61])
def test_kept_values(program: Callable[..., Any], width: int) -> None:
    armature.reset()
    torch.manual_seed(0)
    args = torch.randn(ROWS, 4), torch.randn(ROWS, 4, width), torch.randn(ROWS, width)
    torch.testing.assert_close(armature.compile(program, fullgraph=True)(*args), program(*args))
