"""Modules made inside the compiled function, slices of module lists, and generators that are dropped half way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import armature

LAYERS = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])
SEQUENTIAL = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


class Scale(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.inner = nn.ReLU()
        self.register_buffer("table", torch.full((3,), factor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.factor + self.table


def loss(x: torch.Tensor) -> Any:
    return nn.CrossEntropyLoss(label_smoothing=0.1)(x, torch.zeros(2, dtype=torch.long)), nn.MSELoss()(x, x + 1)


def activation(x: torch.Tensor) -> Any:
    return nn.Sequential(nn.GELU(), nn.Softmax(-1))(x)


def with_parameters(x: torch.Tensor) -> Any:
    made = nn.Linear(3, 3)
    nn.init.eye_(made.weight)
    nn.init.zeros_(made.bias)
    return made(x), len(list(made.parameters()))


def own(x: torch.Tensor) -> Any:
    made = Scale(2.0)
    made.eval()
    return made(x), made.training, [name == "table" for name, _ in made.named_buffers()], len(list(made.children()))


def slices(x: torch.Tensor) -> Any:
    for layer in LAYERS[1:3]:
        x = layer(x)
    return SEQUENTIAL[:2](x), len(LAYERS[:-1])


def wraps_existing(x: torch.Tensor) -> Any:
    return nn.Sequential(LAYERS[0], LAYERS[1])(x)


def first(x: torch.Tensor) -> Any:
    def numbers() -> Iterator[int]:
        try:
            yield 1
            yield 2
        except (IndexError, KeyError):
            yield 3

    return x + next(numbers()), any(number == 1 for number in numbers())


def test_after_torch_compile_has_patched_modules() -> None:
    torch.compile(activation, backend="eager")(torch.ones(2, 3))
    assert_same(activation)
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "function",
    [loss, activation, with_parameters, own, slices, wraps_existing, first],
    ids=lambda function: function.__name__,
)
def test_as_in_eager_mode(function: Callable[[torch.Tensor], Any]) -> None:
    assert_same(function)


def assert_same(function: Callable[[torch.Tensor], Any]) -> None:
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    expected = function(x)
    torch.testing.assert_close(armature.compile(function, backend="eager", fullgraph=True)(x), expected)


def test_a_module_in_the_making_is_left_alone() -> None:
    made: list[nn.Module] = []

    def make(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        nn.Module.__init__(module)
        made.append(module)
        return x + 1

    armature.reset()
    compiled = armature.compile(make, backend="eager")
    module = nn.Linear.__new__(nn.Linear)
    torch.testing.assert_close(compiled(module, torch.ones(2)), torch.full((2,), 2.0))
    assert made == [module]
    assert module._buffers == {}
