"""Operators that are composed of others: no call is left of them, and their values are eager's."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import armature
from armature.pipeline.session import session

ROWS = (torch.arange(24.0).reshape(4, 6) * 0.7).sin() * 3
WHOLE = torch.arange(-12, 12).reshape(4, 6)
POOLED, PLACES = F.max_pool2d(torch.arange(64.0).reshape(1, 1, 8, 8).sin(), 2, return_indices=True)
LENGTH = torch.tensor(9.19)
CASES = {
    "round to decimals": (lambda x: x.round(decimals=1), ROWS),
    "round to tens": (lambda x: x.round(decimals=-1), ROWS * 9),
    "multivariate lgamma": (lambda x: torch.mvlgamma(x, 3), ROWS.abs() + 2),
    "fraction and exponent": (
        lambda x: torch.frexp(x), torch.cat([ROWS.view(-1), torch.tensor([0.0, -0.0, 1e-42, -3e-39, 1e38, torch.inf])]),
    ),
    "fraction and exponent in double": (lambda x: torch.frexp(x), torch.tensor([3.0, -5e-320, 0.0, -torch.inf], dtype=torch.float64)),
    "times a power of two": (lambda x, y: torch.ldexp(x, y), ROWS, WHOLE),
    "norms of slices": (lambda x: x.renorm(2, 0, 1.0), ROWS),
    "nonzero numbers along axes": (lambda x: x.count_nonzero((0, 1)), WHOLE),
    "members": (lambda x, y: torch.isin(x, y), WHOLE, torch.tensor([1, -3, 7])),
    "filled rows": (lambda x, i, v: x.index_fill(0, i, v), ROWS, torch.tensor([2, 0]), torch.tensor(7.0)),
    "a range to a tensor": (lambda x: torch.linspace(0, x, 11), LENGTH),
    "integers from a tensor": (lambda x: torch.linspace(x, 0, 50, dtype=torch.int64), LENGTH),
    "a range between tensors": (lambda x: torch.linspace(x, x * 3, 5, dtype=torch.float64), LENGTH),
    "powers between tensors": (lambda x: torch.logspace(-x / 9, x / 9, 7), LENGTH),
    "unpooled": (lambda x, i: F.max_unpool2d(x, i, 2), POOLED, PLACES),
    "a loss of many labels": (lambda x, y: F.multi_margin_loss(x, y), ROWS, torch.tensor([0, 2, 5, 1])),
    "shifted": (lambda x, y: (x << 2, x >> y), WHOLE, WHOLE.abs() % 4),
    "a number and a tensor": (lambda x: (7 % x, 5 & x), WHOLE.abs() + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_composed(name):
    program, *given = CASES[name]
    armature.reset()
    found, expected = armature.compile(program)(*given), program(*given)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    allowed = 1 if name == "a number and a tensor" else 0  # integers are divided by the kernel, which tells of zeros
    assert session().totals().extern <= allowed
