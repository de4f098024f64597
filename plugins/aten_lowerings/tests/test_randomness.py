"""Numbers drawn are eager's, each at its place, wherever the tensor lies; so are layouts and the generator after it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "row-major": lambda x: x,
    "transposed": lambda x: x.transpose(0, 3),
    "permuted": lambda x: x.permute(3, 0, 1, 2),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "every second": lambda x: x[..., ::2],
    "turned, every second": lambda x: x.transpose(1, 3)[:, ::2],
}
DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "bernoulli_": lambda x: x.bernoulli_(0.3),
    "bernoulli_ by chances": lambda x: x.bernoulli_(x.clone()),
    "cauchy_": lambda x: x.cauchy_(),
    "exponential_": lambda x: x.exponential_(),
    "geometric_": lambda x: x.geometric_(0.2),
    "log_normal_": lambda x: x.log_normal_(),
    "normal_": lambda x: x.normal_(),
    "random_": lambda x: x.random_(),
    "random_ to": lambda x: x.random_(7),
    "random_ from": lambda x: x.random_(2, 7),
    "random_ above": lambda x: x.random_(2, None),
    "uniform_": lambda x: x.uniform_(2, 3),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.3, True),
    "feature alpha dropout": lambda x: F.feature_alpha_dropout(x, 0.3, True),
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout2d": lambda x: F.dropout2d(x, 0.3),
    "rrelu": lambda x: F.rrelu(x - 0.5, training=True),
    "bernoulli": lambda x: torch.bernoulli(x),
    "one chance": lambda x: torch.bernoulli(x, 0.3),
    "poisson": lambda x: torch.poisson(x),
    "normal": lambda x: torch.normal(x, x),
    "normal of spreads": lambda x: torch.normal(1.0, x),
    "gumbel": lambda x: F.gumbel_softmax(x, hard=True),
}


def run(fn: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor) -> list[Tensor]:
    given = x.detach().clone().requires_grad_(x.requires_grad)
    torch.manual_seed(3)
    return [*fn(given), torch.get_rng_state(), given]


def check(program: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor) -> None:
    expected = run(program, x)
    given = run(armature.compile(program, fullgraph=True), x)
    torch.testing.assert_close(given, expected, equal_nan=True)
    assert [t.stride() for t in given] == [t.stride() for t in expected]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("draw", DRAWS)
def test_what_is_drawn(draw: str, layout: str) -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        drawn = DRAWS[draw](LAYOUTS[layout](x * 1))
        return drawn, drawn + 1

    check(program, torch.rand(4, 3, 5, 6))


@pytest.mark.parametrize("draw", [name for name in DRAWS if "_" in name])
def test_what_is_drawn_into_a_part_of_an_input(draw: str) -> None:
    check(lambda x: (DRAWS[draw](x[:, ::2]) + 1,), torch.rand(6, 40))


@pytest.mark.parametrize("draw", DRAWS)
def test_equal_draws_beside_gradients_are_two(draw: str) -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        first, second = (DRAWS[draw](x.detach() * 1) for _ in range(2))
        return (x * first).detach(), (x * second).detach(), x * first * second

    check(program, torch.rand(4, 30).requires_grad_())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.bfloat16, torch.float64])
def test_numbers_up_to_the_largest_of_the_dtype(dtype: torch.dtype) -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        drawn = torch.empty_like(x).random_(1, None)
        return drawn, x.random_(**{"from": 0, "to": None}), drawn == x

    check(program, torch.zeros(5, 7, dtype=dtype))


def test_numbers_above_the_smallest_and_an_int_of_the_caller() -> None:
    check(lambda x: (x.random_(-(2**63), None) + 1,), torch.zeros(40, dtype=torch.int64))
    program = armature.compile(lambda x, low: x.random_(low, None) * 2, fullgraph=True)
    for low in (1, 2**60, 2**62):
        assert program(torch.zeros(40, dtype=torch.int64), low).shape == (40,)


def test_attention_that_drops_all_draws_nothing() -> None:
    x = torch.rand(1, 2, 5, 4)
    check(lambda x: (F.scaled_dot_product_attention(x, x, x, dropout_p=1.0),), x)


def test_gradients_of_dropout_of_a_transposed_tensor() -> None:
    def program(x: Tensor) -> Tensor:
        return F.dropout(x.t() * 2, 0.4).exp()

    results = []
    for fn in (program, armature.compile(program, fullgraph=True)):
        x = torch.linspace(0, 1, 20).reshape(4, 5).requires_grad_()
        torch.manual_seed(3)
        fn(x).sum().backward()
        results.append(x.grad)
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", ["rows", "columns", "parts"])
def test_dropout_in_loops_is_eagers(dtype: torch.dtype, layout: str) -> None:
    x = torch.randn(6, 20, dtype=dtype)
    x = {"rows": x, "columns": x.t(), "parts": x[:, 3:9]}[layout]

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return F.dropout(x, 0.4), torch.rand(3)

    check(program, x)


def test_dropout_needs_memory_for_its_mask_and_its_result_alone() -> None:
    x = torch.randn(64, 64)
    compiled = armature.compile(lambda x: F.dropout(x.sin(), 0.4), fullgraph=True)
    for _ in range(2):
        with torch.profiler.profile(profile_memory=True) as profile:
            compiled(x)
    events = [event for event in cast(Any, profile.profiler).kineto_results.events() if event.name() == "[memory]"]
    held = itertools.accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    assert max(held) == 64 * 64 * (1 + 4)
