"""Recurrent networks over sequences of several lengths: two compilations, and what eager mode gives."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import armature
from armature.pipeline.session import session

LENGTHS = (3, 5, 7, 6)
OPTIONS: dict[str, tuple[type[nn.RNNBase], dict[str, Any]]] = {
    "gru": (nn.GRU, {"batch_first": True}),
    "both directions": (nn.GRU, {"batch_first": True, "bidirectional": True, "num_layers": 2}),
    "steps first": (nn.GRU, {}),
    "tanh": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu", "bias": False}),
}


class Model(nn.Module):
    """Layers that are compiled around one that is not."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.steps = kind(8, 6, **options)
        self.last = nn.Linear(12 if options.get("bidirectional") else 6, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        out, hidden = self.steps(self.first(x).relu())
        return self.last(out).tanh(), hidden * 2


def found_by(model: nn.Module, call: Any, x: Tensor, trains: bool) -> list[Tensor | None]:
    """The results, and the gradients."""
    x = x.clone().requires_grad_(trains)
    model.zero_grad()
    with torch.set_grad_enabled(trains):
        results = call(x)
    if trains:
        (results[0].square().sum() + results[1].sin().sum()).backward()
    return [*results, x.grad, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("trains", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("backend", ["aot_eager", "auto"])
@pytest.mark.parametrize("name", OPTIONS)
def test_the_second_length_is_the_last_that_compiles(name: str, backend: str, trains: bool) -> None:
    torch.manual_seed(0)
    kind, options = OPTIONS[name]
    model = Model(kind, **options)
    other = copy.deepcopy(model)
    armature.reset()
    compiled = armature.compile(other, backend=backend, fullgraph=True)
    for count, length in enumerate(LENGTHS):
        x = torch.randn(2, length, 4) if options.get("batch_first") else torch.randn(length, 2, 4)
        expected = found_by(model, model, x, trains)
        for mine, theirs in zip(found_by(other, compiled, x, trains), expected, strict=True):
            torch.testing.assert_close(mine, theirs)
            assert mine is None or theirs is None or mine.stride() == theirs.stride()
        assert len(session().compilations) == min(count + 1, 2)


def test_packed_sequences_are_not_touched() -> None:
    torch.manual_seed(0)
    model = nn.GRU(4, 6)
    compiled = armature.compile(model)
    for lengths in ([3, 2], [5, 1], [4, 4]):
        packed = nn.utils.rnn.pack_padded_sequence(torch.randn(max(lengths), 2, 4), lengths)
        torch.testing.assert_close(compiled(packed)[0].data, model(packed)[0].data)
