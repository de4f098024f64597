"""`torch.manual_seed` in a compiled function: the numbers drawn before and after it, and what is drawn next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import armature

X = torch.linspace(1, 2, 3)


def seeded(x: Tensor) -> Any:
    torch.manual_seed(3)
    return x + torch.randn(3)


def seeded_twice(x: Tensor) -> Any:
    y = functional.dropout(x, 0.5) * torch.rand(3)
    torch.manual_seed(seed=3)
    y = y + functional.dropout(x * 2, 0.5)
    torch.random.manual_seed(2**40 + x.shape[0])
    return y * torch.rand(3), torch.rand(2)


def in_a_loop(x: Tensor) -> Any:
    for seed in range(3):
        torch.manual_seed(seed)
        x = x * torch.rand(3) + x
    return x


def negative(x: Tensor) -> Any:
    return x * torch.rand(1), torch.manual_seed(-5) is None, torch.rand(1)


def rerun(x: Tensor) -> Any:
    y = x * torch.rand(3)
    torch.manual_seed(1)
    try:
        return (y + torch.rand(3))[torch.tensor([5])]
    except IndexError:
        return y + torch.rand(3)


def inside_a_checkpoint(x: Tensor) -> Any:
    def part(x: Tensor) -> Tensor:
        torch.manual_seed(2)
        return functional.dropout(x, 0.5).sin()

    return checkpoint(part, x, use_reentrant=False) * torch.rand(3)


def no_int(x: Tensor) -> Any:
    torch.manual_seed(2.0)  # type: ignore[arg-type]
    return x * torch.rand(3)


def goes_back(x: Tensor) -> Any:
    state = torch.get_rng_state()
    y = functional.dropout(x, 0.5) * torch.rand(3)
    torch.set_rng_state(state)
    return y, functional.dropout(x, 0.5), torch.rand(2), state


def goes_on_after_a_seed(x: Tensor) -> Any:
    state = torch.random.get_rng_state()
    torch.manual_seed(3)
    y = x * torch.rand(3)
    torch.random.set_rng_state(state)
    return y * torch.rand(3)


def goes_back_after_an_error(x: Tensor) -> Any:
    state = torch.get_rng_state()
    y = x * torch.rand(3)
    try:
        return y[torch.tensor([5])]
    except IndexError:
        torch.set_rng_state(state)
        return y + torch.rand(3)


def no_state(x: Tensor) -> Any:
    try:
        torch.set_rng_state(torch.zeros(3))
    except TypeError:
        return x * torch.rand(3)


def seen(fn: Callable[..., Any], *args: int, learns: bool) -> list[Any]:
    """Results and gradient, and the number drawn next."""
    torch.manual_seed(0)
    x = X.clone().requires_grad_(learns)
    found = fn(x, *args)
    results = list(found) if isinstance(found, tuple) else [found]
    if learns:
        results += torch.autograd.grad(results[0].sum(), x)
    return [*results, torch.rand(1)]


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "auto"])
@pytest.mark.parametrize(
    "program",
    [
        seeded,
        seeded_twice,
        in_a_loop,
        negative,
        rerun,
        inside_a_checkpoint,
        no_int,
        goes_back,
        goes_on_after_a_seed,
        goes_back_after_an_error,
        no_state,
    ],
    ids=lambda fn: fn.__name__,
)
def test_as_in_eager_mode(program: Callable[..., Any], backend: str, learns: bool) -> None:
    armature.reset()
    breaking = program in (inside_a_checkpoint, no_int, no_state)
    compiled = armature.compile(program, backend=backend, fullgraph=not breaking)
    for _ in range(3):
        torch.testing.assert_close(seen(compiled, learns=learns), seen(program, learns=learns))


def test_a_seed_that_differs_from_call_to_call() -> None:
    def program(x: Tensor, seed: int) -> Tensor:
        torch.manual_seed(seed + 1)
        return x + torch.rand(3)

    graphs = []
    compiled = armature.compile(program, backend=lambda graph, _: graphs.append(graph) or graph, fullgraph=True)
    for seed in (1, 2, 5, 8):
        torch.testing.assert_close(seen(compiled, seed, learns=False), seen(program, seed, learns=False))
    assert len(graphs) == 2


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_nothing_is_seeded_by_compiling(backend: str) -> None:
    compiled = armature.compile(lambda x: (torch.rand(3) * x, torch.manual_seed(7) is None, x)[0], backend=backend)
    torch.manual_seed(4)
    expected = torch.rand(3) * X
    torch.manual_seed(4)
    torch.testing.assert_close(compiled(X), expected)
    assert torch.initial_seed() == 7


def test_branches_have_no_place_for_a_seed() -> None:
    def seeds(x: Tensor) -> Tensor:
        torch.manual_seed(2)
        return x * torch.rand(3)

    def program(x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, seeds, lambda x: x * 2, (x,))

    with pytest.raises(armature.errors.Unsupported, match="manual_seed"):
        armature.compile(program, backend="aot_eager", fullgraph=True)(X)
