"""Modules that make their parameters from their first input: that call runs in eager mode, the next one is one graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import armature
from armature import errors
from armature.frame.history import MANY_WAITS
from armature.pipeline.session import session


class Breaking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.LazyLinear(3), nn.LazyLinear(2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        print(end="")
        return self.last(x * 2)


def in_a_function() -> Callable[[Tensor], Tensor]:
    layer = nn.LazyLinear(3)
    return lambda x: layer(x + torch.rand(1)) + 1


LAZY: dict[str, Callable[[], Any]] = {
    "alone": lambda: nn.LazyLinear(3),
    "several": lambda: nn.Sequential(nn.LazyLinear(3), nn.Dropout(0.5), nn.LazyBatchNorm1d(), nn.LazyLinear(2)),
    "function": in_a_function,
}


def outcome(make: Callable[[], Any], around: Callable[[Any], Any]) -> list[Any]:
    torch.manual_seed(0)
    made = make()
    call = around(made)
    found = [call(torch.randn(size, 4)) for size in (2, 3, 3)]
    sum(result.square().sum() for result in found).backward()
    state = copy.deepcopy(made.state_dict()) if isinstance(made, nn.Module) else None
    return [*found, state, torch.rand(1)]


@pytest.mark.parametrize("name", LAZY)
@pytest.mark.parametrize("fullgraph", [True, False])
def test_the_first_call_makes_the_parameters(name: str, fullgraph: bool) -> None:
    """Drawn at their time from torch's generator. The second call compiles, the third one for another size."""
    armature.reset()
    expected = outcome(LAZY[name], lambda fn: fn)
    found = outcome(LAZY[name], lambda fn: armature.compile(fn, backend="eager", fullgraph=fullgraph))
    torch.testing.assert_close(found, expected)
    first, *others = session().compilations
    assert "waits for its first input" in first.reason and not first.graphs
    assert others and not any(compilation.breaks for compilation in others)


def test_after_a_break() -> None:
    armature.reset()
    expected = outcome(Breaking, lambda fn: fn)
    torch.testing.assert_close(outcome(Breaking, lambda fn: armature.compile(fn, backend="eager")), expected)


def fresh(x: Tensor, layer: nn.Module) -> Tensor:
    return layer(x) * 2


def test_always_another_one() -> None:
    """Given a new module in each call, the function would never be compiled: in the end that is an error."""
    for fullgraph in (False, True):
        armature.reset()
        quick = armature.compile(fresh, backend="eager", fullgraph=fullgraph)
        for turn in range(MANY_WAITS + 2):
            x, layers = torch.randn(2, turn + 1), [nn.LazyLinear(3), nn.LazyLinear(3)]
            torch.manual_seed(turn)
            expected = fresh(x, layers[0])
            torch.manual_seed(turn)
            if fullgraph and turn >= MANY_WAITS:
                with pytest.raises(errors.Unsupported, match="UninitializedParameter"):
                    quick(x, layers[1])
            else:
                torch.testing.assert_close(quick(x, layers[1]), expected)


def test_models_do_not_count_for_each_other() -> None:
    for turn in range(MANY_WAITS + 2):
        model = nn.Sequential(nn.LazyLinear(3))
        quick = armature.compile(model, backend="eager", fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(quick(torch.ones(2, turn + 1)), model(torch.ones(2, turn + 1)))
