"""Modules taken from a list by a number that varies: rounds of a broken loop share code, and each gets its own module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import armature

Forward = Callable[..., Any]


class Layers(nn.Module):
    """A loop with a break in each round."""

    def __init__(self, forward: Forward, norms: list[nn.Module]) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norms)
        self.linears = nn.ModuleList(nn.Linear(4, 4) for _ in norms)
        self.scales = nn.ParameterList(torch.ones(4) for _ in norms)
        self.how = forward

    def forward(self, x, mask, *args):
        return self.how(self, x, mask, *args)


def by_range(self, x, mask):
    for i in range(len(self.norms)):
        y = self.linears[i](x)
        x = x + y[mask].sum() + self.norms[i](y)
    return x


def by_parameters(self, x, mask):
    for i in range(len(self.scales)):
        x = x + (x * self.scales[i])[mask].sum() - self.scales[i]
    return x


def by_enumerate(self, x, mask):
    for i, linear in enumerate(self.linears):
        y = linear(x)
        x = x + y[mask].sum() + self.norms[i](y)
    return x


def counts(self, x, mask):
    for i in range(len(self.norms)):
        y = self.norms[i](x)
        self.norms[i].calls = getattr(self.norms[i], "calls", 0) + 1
        x = x + y[mask].sum()
        self.norms[i].last = y
    return x


def replaces(self, x, mask):
    for i in range(len(self.norms)):
        y = self.norms[i](x)
        x = x + y[mask].sum()
        first = self.norms[i]
        self.norms[i] = self.linears[i]
        x = self.norms[i](x) + first(x)
    return x


def compares(self, x, mask):
    for i in range(len(self.norms)):
        x = x + self.norms[i](x)[mask].sum()
        x = x * 2 if self.norms[i] is self.norms[0] else x - 1
        x = x * 3 if self.norms[i] is self.norms[-1] else x - 2
    return x


def beside_a_fixed_one(self, x, mask):
    for i in range(len(self.norms)):
        x = x + self.norms[1](x)[mask].sum()
        self.norms[1].calls = getattr(self.norms[1], "calls", 0) + 1
        x = x + self.norms[i](x) * getattr(self.norms[i], "calls", 5)
    return x


def backwards(self, x, mask):
    for i in range(len(self.norms)):
        x = x + self.norms[-1 - i](x)[mask].sum()
        x = x + self.linears[-i](x) + self.norms[i - 1](x)
    return x


FORWARDS = [by_range, by_parameters, by_enumerate, counts, replaces, compares, beside_a_fixed_one, backwards]
NORMS: dict[str, Callable[[], list[nn.Module]]] = {
    "alike": lambda: [nn.LayerNorm(4) for _ in range(5)],
    "of several classes": lambda: [nn.LayerNorm(4), nn.Identity(), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 4)],
    "with several settings": lambda: [nn.Softmax(dim % 2) for dim in range(5)],
    "of several sizes": lambda: [nn.Sequential(nn.Linear(4, n), nn.Linear(n, 4)) for n in (3, 5, 4, 3, 7)],
    "with running statistics": lambda: [nn.BatchNorm1d(4) for _ in range(5)],
    "one twice": lambda: [same := nn.LayerNorm(4), nn.Tanh(), same, nn.LayerNorm(4), same],
}


def filled(model: Layers) -> Layers:
    with torch.no_grad():
        for place, value in enumerate(model.parameters()):
            value.copy_(torch.linspace(-1, 1, value.numel()).reshape(value.shape).roll(place) + place / 50)
    return model


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(-2, 2, 24).reshape(6, 4).requires_grad_()
    return x, torch.tensor([True, False, True, True, False, False])


def run(model: Layers, called: Callable[..., Any], *more: Any) -> list[Any]:
    """Results, gradients, and what the call has left behind."""
    model.zero_grad()
    result = called(*arguments(), *more)
    result.sum().backward()
    left = [(getattr(norm, "calls", None), getattr(norm, "last", None)) for norm in model.norms]
    return [result, [p.grad for p in model.parameters()], [b.clone() for b in model.buffers()], left]


def agree(model: Layers, other: Layers, compiled: Callable[..., Any], *more: Any) -> None:
    torch.testing.assert_close(run(model, compiled, *more), run(other, other, *more))
    assert [type(norm) for norm in model.norms] == [type(norm) for norm in other.norms]


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("norms", NORMS)
def test_each_round_has_its_module(forward: Forward, norms: str) -> None:
    model, other = (filled(Layers(forward, NORMS[norms]())) for _ in range(2))
    compiled = armature.compile(model, backend="eager")
    for _ in range(2):
        agree(model, other, compiled)


@pytest.mark.parametrize("forward", [by_range, by_parameters, by_enumerate])
def test_rounds_share_code(forward: Forward) -> None:
    found = []
    for count in (3, 9):
        model = filled(Layers(forward, [nn.LayerNorm(4) for _ in range(count)]))
        found.append(len(armature.explain(model)(*arguments()).graphs))
    assert found[0] == found[1]


@pytest.fixture
def many_compilations() -> Iterator[None]:
    with armature.config.patch(recompile_limit=64):
        yield


def by_argument(self, x, mask, i):
    return self.norms[i](x) + self.linears[i](x)


@pytest.mark.usefixtures("many_compilations")
def test_a_number_that_is_passed() -> None:
    """Modules are changed, added and removed between the calls."""
    model, other = (filled(Layers(by_argument, NORMS["alike"]())) for _ in range(2))
    compiled = armature.compile(model, backend="eager")
    for number in (0, 1, 2, 3, -1, -5, 4):
        agree(model, other, compiled, number)
    for each in (model, other):
        each.norms[2] = nn.Softmax(-1)
        each.norms[3].register_forward_hook(lambda module, args, result: result * 2)
        each.norms[1].eps = 0.5
        each.linears[1].bias = None
        each.norms.append(nn.Tanh())
        each.linears.append(nn.Identity())
    for number in (0, 1, 2, 3, 4, 5, -6, True):
        agree(model, other, compiled, number)
    for each in (model, other):
        del each.norms[3:]
    for number in (0, 1, 2, -3):
        agree(model, other, compiled, number)
    for number in (3, 7, -4):
        with pytest.raises(IndexError, match=f"index {number} is out of range"):
            compiled(*arguments(), number)


def swaps(self, x, mask, i, j):
    self.norms[i].calls = getattr(self.norms[i], "calls", 0) + 1
    return self.norms[i](x) * 2 + self.norms[j](x) * self.norms[j].calls


@pytest.mark.usefixtures("many_compilations")
def test_two_numbers_that_meet() -> None:
    model, other = (filled(Layers(swaps, NORMS["alike"]())) for _ in range(2))
    for each in (model, other):
        for norm in each.norms:
            norm.calls = 3
    compiled = armature.compile(model, backend="eager")
    for i, j in ((0, 1), (1, 2), (2, 3), (3, 3), (1, 1), (4, 0), (0, 4)):
        agree(model, other, compiled, i, j)
