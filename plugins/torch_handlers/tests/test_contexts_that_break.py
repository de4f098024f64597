"""Contexts that no graph can have inside: one break where they are entered, and one where they are left."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

import armature

X = torch.linspace(-1, 1, 4)


def forked(x: Tensor) -> Tensor:
    y = x * 2
    with torch.random.fork_rng(devices=[]):
        y = y + torch.rand(4)
    return y + torch.rand(4)


def forked_around_a_function(x: Tensor) -> Tensor:
    @torch.random.fork_rng(devices=[])
    def draws(x: Tensor) -> Tensor:
        return x + torch.rand(4)

    return draws(x * 2) + torch.rand(4)


def forked_later(x: Tensor) -> Tensor:
    fork = torch.random.fork_rng(devices=[], enabled=True)
    y = x * 2
    with fork:
        y = y + torch.rand(4)
    return y + torch.rand(4)


def forked_and_seeded(x: Tensor) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        y = x * torch.rand(4)
    return y + torch.rand(4)


def hooked(x: Tensor) -> Tensor:
    y = x * 2
    with saved_tensors_hooks(lambda t: t * 2, lambda t: t):  # doubles what backward reads
        y = y * y
    return y * y


def saved_on_the_host(x: Tensor) -> Tensor:
    y = x * 2
    with save_on_cpu():
        y = y * y
    return y * y


def recorded(x: Tensor) -> Tensor:
    y = x * 2
    with warnings.catch_warnings(record=True) as caught:
        y = y + len(caught)
    return y * 2


def differentiated(fn: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
    """Result, gradient and the next random number."""
    torch.manual_seed(5)
    x = X.clone().requires_grad_()
    result = fn(x)
    return (result, *torch.autograd.grad(result.sum(), x), torch.rand(1))


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize(
    "program", [forked, forked_around_a_function, forked_later, forked_and_seeded, hooked, saved_on_the_host, recorded]
)
def test_two_breaks_at_most(program: Callable[[Tensor], Tensor], backend: str) -> None:
    armature.reset()
    compiled = armature.compile(program, backend=backend)
    before = warnings.showwarning, [*warnings.filters]
    for _ in range(2):
        torch.testing.assert_close(differentiated(compiled), differentiated(program))
    assert (warnings.showwarning, [*warnings.filters]) == before
    assert armature.explain(program)(X).graph_break_count <= 2


def test_a_fork_that_is_never_entered_is_one_graph() -> None:
    def makes_one(x: Tensor) -> Tensor:
        fork = torch.random.fork_rng(devices=[])
        return x * 2 if callable(fork) else x

    assert torch.equal(armature.compile(makes_one, fullgraph=True)(X), makes_one(X))
