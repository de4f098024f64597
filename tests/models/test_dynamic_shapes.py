"""Models with the built-in back end and sizes that change: eager's answers and gradients, two compilations."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import armature
from armature.pipeline.session import session


@pytest.fixture(autouse=True)
def fresh() -> None:
    armature.reset()
    torch.manual_seed(0)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.norm(self.up(x)))) * x.shape[0]


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.relu(self.norm(self.conv(x))).mean((2, 3)))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(20, 16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.table(words)
        b, t, c = x.shape
        x = x + torch.arange(t)[None, :, None] * 0.01
        q, k, v = (part.view(b, t, 2, 8).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        weights = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(~mask, float("-inf")).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(b, t, c))


def train(model: nn.Module, run: Any, x: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    result = run(x)
    result.square().mean().backward()
    return [result, *(parameter.grad for parameter in model.parameters()), *model.buffers()]


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Mlp, [torch.randn(n, 6) for n in (4, 7, 33)]),
        pytest.param(Images, [torch.randn(n, 3, m, m) for n, m in ((3, 8), (4, 9), (5, 6))], marks=pytest.mark.slow),
        pytest.param(
            Words,
            [torch.randint(0, 20, (b, t)) for b, t in ((2, 5), (3, 7), (4, 16), (7, 33))],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["mlp", "images", "words"],
)
def test_training_with_sizes_that_change(model: type[nn.Module], inputs: list[torch.Tensor]) -> None:
    made = model()
    reference = copy.deepcopy(made)
    quick = armature.compile(made, fullgraph=True)
    for x in inputs:
        got, want = train(made, quick, x), train(reference, reference, x)
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
        assert [t.stride() for t in got] == [t.stride() for t in want]
    assert len(session().compilations) == 2
    kernels = [source.text for graph in session().compilations[-1].graphs for source in graph.program.sources]
    assert kernels  # sizes are arguments of kernels, no reason to leave operators to eager


def test_inference_with_sizes_that_change() -> None:
    def fn(x: torch.Tensor, by: int) -> Any:
        half = x[: x.shape[0] // 2]
        return (x.softmax(1) * by).sum(0), torch.cat([half, x * 2]), x.t().reshape(-1) + x.shape[0], f"{by} of {len(x)}"

    quick = armature.compile(fn, fullgraph=True)
    for n, by in ((4, 2), (6, 3), (33, 4), (7, 9)):
        x = torch.randn(n, 6)
        got, want = quick(x, by), fn(x, by)
        torch.testing.assert_close(got[:3], want[:3])
        assert got[3] == want[3]
    assert len(session().compilations) == 2
    for n in (1, 0, 5):
        x = torch.randn(n, 6)
        torch.testing.assert_close(quick(x, 3)[:3], fn(x, 3)[:3])
    assert len(session().compilations) == 4
