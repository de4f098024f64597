"""Divergences of torch.distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, Normal, kl_divergence
from torch.distributions.kl import register_kl

import armature

PAIRS: tuple[Callable[[Tensor], tuple[Distribution, Distribution]], ...] = (
    lambda x: (Normal(x, x.exp()), Normal(torch.zeros_like(x), torch.ones_like(x))),
    lambda x: (Categorical(logits=x), Categorical(probs=torch.full_like(x, 0.25))),
)


def graphs_and_results(fn: Callable[[Tensor], Tensor], calls: int) -> tuple[int, list[Tensor]]:
    """How many graphs are made for a function that is called several times, and its results."""
    made = []

    def backend(module: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        made.append(module)
        return module.forward

    armature.reset()
    compiled = armature.compile(fn, backend=backend, fullgraph=True)
    results = [compiled(torch.linspace(-1.0, number, 4)) for number in range(calls)]
    return len(made), results


@pytest.mark.parametrize("pair", PAIRS)
def test_a_divergence_is_compiled_once(pair: Callable[[Tensor], tuple[Distribution, Distribution]]) -> None:
    torch.distributions.kl._KL_MEMOIZE.clear()

    def divergence(x: Tensor) -> Tensor:
        return kl_divergence(*pair(x)).sum()

    graphs, results = graphs_and_results(divergence, 3)
    assert graphs == 1
    for number, result in enumerate(results):
        torch.testing.assert_close(result, divergence(torch.linspace(-1.0, number, 4)))


def test_a_divergence_that_is_registered_later() -> None:
    class Own(Normal):
        pass

    @armature.compile
    def divergence(x: Tensor) -> Tensor:
        return kl_divergence(Own(x, x.exp()), Own(-x, x.exp())).sum()

    x = torch.linspace(-1.0, 1.0, 4)
    assert divergence(x) != 7
    register_kl(Own, Own)(lambda p, q: torch.full((1,), 7.0))
    try:
        assert divergence(x) == 7
    finally:
        del torch.distributions.kl._KL_REGISTRY[Own, Own]
        torch.distributions.kl._KL_MEMOIZE.clear()


def test_no_divergence_is_known() -> None:
    def divergence(x: Tensor) -> Tensor:
        return kl_divergence(Categorical(logits=x), Normal(x, x.exp()))

    with pytest.raises(NotImplementedError, match="No KL"):
        armature.compile(divergence)(torch.ones(3))
