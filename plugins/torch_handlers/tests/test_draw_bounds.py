"""Branches on `torch.rand` that go the same way for each number drawn."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import armature

NUMBERS = (-0.5, 0, 0.0, 0.5, 1, 1.0, 2.0, float("nan"))
OPERATORS = (operator.lt, operator.le, operator.gt, operator.ge)
FUNCTIONS = (torch.lt, Tensor.ge)  # take a tensor first


class Dropping(torch.nn.Module):
    """Layers that are skipped at random, as in BART and Whisper."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if self.training and torch.rand([]) < self.share:
                continue
            x = layer(x).relu()
        return torch.nn.functional.dropout(x, 0.5, self.training)


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("share", [0, 0.0, 1.0])
def test_layers_are_one_graph_and_draw_the_same_numbers(backend: str, share: float) -> None:
    model, x = Dropping(share), torch.randn(3, 4)
    compiled = armature.compile(model, backend=backend, fullgraph=True)
    for seed in range(3):
        found = []
        for call in (model, compiled):
            torch.manual_seed(seed)
            found.append((call(x), torch.rand(2)))
        torch.testing.assert_close(found[0], found[1])


def test_other_shares_end_the_graph() -> None:
    found = armature.explain(Dropping(0.5))(torch.randn(3, 4)).breaks
    assert {event.type.id for event in found} == {"data-dependent-branch"}


@pytest.mark.parametrize(
    ("compare", "swapped"),
    [*((fn, False) for fn in (*OPERATORS, *FUNCTIONS)), *((fn, True) for fn in OPERATORS)],
)
@pytest.mark.parametrize("number", NUMBERS)
def test_what_each_draw_would_answer(compare: Callable[..., Tensor], swapped: bool, number: float) -> None:
    """A branch is known if the smallest and the largest draw agree, and then has their answer."""

    def ask(draw: Tensor) -> Tensor:
        return compare(number, draw) if swapped else compare(draw, number)

    def f(x: Tensor) -> Tensor:
        return x + 1 if ask(torch.rand([])) else x - 1

    armature.reset()  # `number` would become a symbol, and its comparison a branch
    x = torch.zeros(2)
    least, most = (bool(ask(torch.tensor(draw))) for draw in (0.0, 1 - 2**-24))
    breaks = armature.explain(f)(x).breaks
    assert bool(breaks) == (least is not most or number != number)
    if not breaks:
        assert torch.equal(armature.compile(f, fullgraph=True)(x), x + 1 if least else x - 1)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.rand(1)[0],
        lambda: torch.rand(1, 1).squeeze(),
        lambda: torch.rand([]).view(1),
        lambda: torch.rand_like(torch.zeros(1)).reshape([]),
    ],
)
def test_numbers_taken_out_of_a_draw(draw: Callable[[], Tensor]) -> None:
    assert not armature.explain(lambda x: x + 1 if draw() < 0.0 else x - 1)(torch.zeros(2)).breaks


def shifted(x: Tensor) -> Tensor:
    draw = torch.rand([])
    draw -= 2
    return x + 1 if draw < 0.0 else x - 1


def compared_then_written(x: Tensor) -> Tensor:
    less = torch.rand([]) < 0.0
    less.fill_(True)
    return x + 1 if less else x - 1


def into_another(x: Tensor) -> Tensor:
    made = torch.zeros([])
    draw = torch.rand([], out=made)
    return x + 1 if draw < 0.0 else x - 1


def written_through_a_view(x: Tensor) -> Tensor:
    draw = torch.rand(2)
    draw[:1] = -3.0
    return x + 1 if draw[0] < 0.0 else x - 1


@pytest.mark.parametrize("f", [shifted, compared_then_written, into_another, written_through_a_view])
def test_tensors_that_are_written_are_no_draws(f: Callable[[Tensor], Tensor]) -> None:
    x = torch.zeros(2)
    assert torch.equal(armature.compile(f)(x), f(x))
    assert armature.explain(f)(x).breaks
