"""The recompile limit of methods that many modules share: those with parametrizations have a class of their own each."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import armature
from armature.errors import ArmatureWarning
from armature.pipeline.session import Outcome, session


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight * 2


@armature.disable
def outside() -> None:
    """A call that breaks the graph."""


class Layer(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        parametrize.register_parametrization(self.linear, "weight", Doubled())

    def forward(self, x: Tensor) -> Tensor:
        outside()
        return self.linear(x)  # type: ignore[no-any-return]


class Padded(nn.Module):
    """A layer whose size is a constant of its code."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(3, 3, kernel)

    def forward(self, x: Tensor) -> Tensor:
        outside()
        return self.convolution(x)  # type: ignore[no-any-return]


class Model(nn.Module):
    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return x


def warnings_of(model: nn.Module, *inputs: Tensor) -> list[str]:
    """What armature warns of; results are compared with eager mode's."""
    armature.reset()
    compiled = armature.compile(model, backend="eager", dynamic=False, options={"recompile_limit": 2})
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for x in inputs:
            torch.testing.assert_close(compiled(x), model(x))
    return [str(each.message) for each in shown if each.category is ArmatureWarning]


def test_modules_with_classes_of_their_own_have_a_limit_each() -> None:
    assert warnings_of(Model([Layer(3) for _ in range(7)]), torch.ones(2, 3)) == []
    assert sum(record.outcome is Outcome.COMPILED for record in session().compilations) >= 7


def test_modules_of_one_class_with_other_sizes_have_a_limit_each() -> None:
    assert warnings_of(Model([Padded(kernel) for kernel in range(1, 8)]), torch.ones(2, 3, 50)) == []
    assert sum(record.outcome is Outcome.COMPILED for record in session().compilations) >= 7


def test_inputs_of_one_such_module_count() -> None:
    shown = warnings_of(Layer(3), *[torch.ones(n, 3) for n in range(2, 7)])
    assert any("Layer.forward" in each and "armature.mark_dynamic(x, 0)" in each for each in shown)
    assert not any("modules run it" in each for each in shown)


def test_their_number_is_bounded_and_the_warning_says_why() -> None:
    shown = warnings_of(Model([Layer(3) for _ in range(20)]), torch.ones(2, 3))
    assert shown and all("modules run it" in each and "mark_dynamic" not in each for each in shown)
