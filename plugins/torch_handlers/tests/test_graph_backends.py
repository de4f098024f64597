"""The back ends that generate no code give what eager mode gives: values, gradients, buffers and changes of inputs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from armature.api import public as api


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_training(backend: str) -> None:
    ours, theirs = model(), copy.deepcopy(model())
    x = torch.randn(3, 1, 6, 6)
    api.compile(ours, backend=backend, fullgraph=True)(x).square().sum().backward()
    theirs(x).square().sum().backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
    for mine, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_inference_with_a_changed_input_and_a_view(backend: str) -> None:
    def changes(x: Tensor) -> tuple[Tensor, Tensor]:
        x.add_(1)
        return x * 2, x.view(-1)

    x = torch.ones(2, 3)
    doubled, view = api.compile(changes, backend=backend, fullgraph=True)(x)
    assert torch.equal(x, torch.full((2, 3), 2.0))
    assert torch.equal(doubled, torch.full((2, 3), 4.0))
    assert view.data_ptr() == x.data_ptr()
