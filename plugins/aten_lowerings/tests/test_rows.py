"""Sums that norms read along their rows are stored by rows, and nothing of it is to be seen from outside."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import armature
from armature.pipeline.session import session
from armature.plugin_api import fake_of
from armature.testing.differential import against_eager


class Layers(nn.Module):
    """Patches of a picture, and two layers that add to them."""

    def __init__(self, returned: str = "normed") -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.places = nn.Parameter(torch.randn(1, 16, 16))
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(3))
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.returned = returned

    def forward(self, x: Tensor) -> object:
        x = first = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for norm, layer in zip(self.norms, self.layers, strict=False):
            x = x + layer(norm(x)).relu()
        normed = self.norms[2](x)
        if self.returned == "a slice":
            return normed, first[:, 1:], x[:, 0]
        return {"normed": normed, "first": (normed, first), "last": (normed, x)}[self.returned]


def first_tensor(output: object) -> Tensor:
    """The first of a model's results."""
    return output if isinstance(output, Tensor) else output[0]  # type: ignore[index]


@pytest.mark.parametrize("returned", ["normed", "first", "last", "a slice"])
@pytest.mark.parametrize("train", [False, True])
def test_results_and_their_strides_are_eager_modes(returned: str, train: bool) -> None:
    torch.manual_seed(0)
    model, x = Layers(returned).train(train), torch.randn(2, 3, 16, 16)
    loss = (lambda output: first_tensor(output).square().sum()) if train else None
    with torch.set_grad_enabled(train):
        assert against_eager(model, lambda m: armature.compile(m, fullgraph=True), (x,), loss) < 1e-4


@pytest.mark.parametrize("train", [False, True])
def test_no_norm_reads_columns(train: bool) -> None:
    armature.reset()
    model, x = Layers().train(train), torch.randn(2, 3, 16, 16)
    with torch.set_grad_enabled(train):
        armature.compile(model, fullgraph=True)(x)
    graph = session().compilations[-1].graphs[0].aten.module.graph
    norms = graph.find_nodes(op="call_function", target=torch.ops.aten.native_layer_norm.default)
    assert [fake_of(norm.args[0]).is_contiguous() for norm in norms] == [True] * 3
