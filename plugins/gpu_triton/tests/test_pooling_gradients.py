"""Gradients of maximum pooling by positions, through Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import armature
from armature.pipeline.session import session


@pytest.mark.parametrize("kernel", [2, 7])
def test_gradients_of_maxima(interpreted: None, kernel: int) -> None:
    """Windows of 7 elements, 3 apart: an element is in up to 9 of them."""
    x = torch.randn(2, 3, 12, 13).to(memory_format=torch.channels_last)
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    out = armature.compile(lambda x: F.max_pool2d(x, kernel, 3, return_indices=True)[0])(ours)
    out.cos().sum().backward()
    F.max_pool2d(theirs, kernel, 3).cos().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    backward = session().compilations[-1].graphs[-1].plan
    assert "max_pool2d_with_indices_backward" not in str([getattr(step, "target", "") for step in backward.steps])
