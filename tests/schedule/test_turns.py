"""Calls that keep the program's order: random numbers, and operators of other libraries."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import armature
from armature.lower.data import ExternCall, LoopGraph
from armature.lower.reasons import Reason
from armature.schedule.dependencies import dependencies

aten = torch.ops.aten


def call(name: str, target: torch._ops.OpOverload) -> ExternCall:
    return ExternCall(name, target, (), {}, (name,), reason=Reason("no-lowering"))


def test_each_draw_waits_for_the_one_before() -> None:
    units = [
        call("first", aten.native_dropout.default),
        call("product", aten.mm.default),
        call("second", aten.bernoulli.p),
        call("reduced", torch.ops._c10d_functional.all_reduce.default),
    ]
    loops = LoopGraph(name="graph", inputs=(), constants={}, buffers={}, nodes=(), outputs=())
    before = dependencies(units, loops, {}).before
    assert before == (frozenset(), frozenset(), frozenset({0}), frozenset({2}))


class Halves(nn.Module):
    """An encoder, and a decoder that could begin without it."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.decoder(y, self.encoder(x))


@pytest.mark.parametrize("backend", ["auto", "aot_eager"])
def test_branches_of_a_program_draw_in_its_order(backend: str) -> None:
    model, x = Halves(), torch.randn(2, 8, 16)
    torch.manual_seed(1)
    expected = model(x, x + 1)
    torch.manual_seed(1)
    found = armature.compile(model, backend=backend, fullgraph=True)(x, x + 1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
