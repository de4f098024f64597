"""`torch.logit` at its bounds, at zeros of either sign, and of NaN, as the kernel computes single elements."""

from __future__ import annotations

import pytest
import torch

import armature

NUMBERS = [-0.0, 0.0, 1.0, 0.5, -1.0, 2.0, float("nan"), float("inf"), float("-inf"), 0.25, 1 - 2**-9]


@pytest.mark.parametrize("eps", [None, -1.0, 0.0, 1e-3, 0.25, 0.6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_values_and_gradients(dtype: torch.dtype, eps: float | None) -> None:
    run = armature.compile(lambda x: torch.logit(x, eps), fullgraph=True)
    for number in NUMBERS:
        mine, theirs = (torch.tensor([number], dtype=dtype, requires_grad=True) for _ in range(2))
        found, expected = run(mine), torch.logit(theirs, eps)
        found.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(found, expected, equal_nan=True)
        torch.testing.assert_close(mine.grad, theirs.grad, equal_nan=True)


def test_integers() -> None:
    x = torch.tensor([0, 1, 2, -1])
    found = armature.compile(lambda x: (torch.logit(x), torch.logit(x, 0.25)), fullgraph=True)(x)
    torch.testing.assert_close(found, (torch.logit(x), torch.logit(x, 0.25)), equal_nan=True)
