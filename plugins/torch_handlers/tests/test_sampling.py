"""Dropout at its edges: what comes out, whether it is the tensor itself, and what is drawn for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature

PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "nothing dropped": lambda x: F.dropout(x, 0.0),
    "no training": lambda x: F.dropout(x, 0.4, False),
    "all dropped": lambda x: F.dropout(x, 1.0),
    "all dropped, in place": lambda x: F.dropout(x * 1, 1.0, inplace=True),
    "torch.dropout": lambda x: (torch.dropout(x, 0.0, True), torch.dropout(x, 1.0, True), torch.dropout(x, 0.5, True)),
    "no elements": lambda x: F.dropout(x[:0], 0.5),
    "channels": lambda x: (F.dropout1d(x, 0.0), F.dropout1d(x, 1.0)),
    "alpha": lambda x: (F.alpha_dropout(x, 0.0, True), F.alpha_dropout(x, 1.0, True), F.alpha_dropout(x, 1.0)),
    "features": lambda x: (F.feature_alpha_dropout(x, 0.0, True), F.feature_alpha_dropout(x, 1.0, True)),
    "native, none": lambda x: torch.native_dropout(x, 0.0, True)[0],
    "native, all": lambda x: torch.native_dropout(x, 1.0, True),
    "native, no training": lambda x: torch.native_dropout(x, 0.3, False),
    "native": lambda x: torch.native_dropout(x, 0.3, True),
}


@pytest.mark.parametrize("mode", ["plain", "gradients", "inference"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_dropout_at_its_edges(name: str, mode: str) -> None:
    def program(x: Tensor) -> tuple[Any, bool]:
        y = PROGRAMS[name](x)
        return y, y is x

    results = []
    for fn in (program, armature.compile(program, fullgraph=True)):
        with torch.inference_mode(mode == "inference"):
            x = torch.linspace(-1, 1, 30).reshape(2, 3, 5).requires_grad_(mode == "gradients")
            torch.manual_seed(3)
            y, same = fn(x)
            parts = y if isinstance(y, tuple) else (y,)
            if mode == "gradients":
                sum(part.double().sum() for part in parts).backward()
            results.append((parts, same, torch.get_rng_state(), x.grad, [p.requires_grad for p in parts]))
    expected, given = results
    torch.testing.assert_close(given, expected)


def test_what_was_not_dropped_is_the_tensor_written_to() -> None:
    def program(x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, training=False).add_(1)

    with torch.inference_mode():
        x = torch.zeros(3)
        armature.compile(program, fullgraph=True)(x)
        assert x.tolist() == [1, 1, 1]


def test_another_chance_is_another_graph() -> None:
    compiled = armature.compile(lambda x, p: F.dropout(x, p), fullgraph=True)
    x = torch.ones(100)
    assert compiled(x, 0.0) is x
    assert not compiled(x, 1.0).any()
    assert 0 < int(compiled(x, 0.5).count_nonzero()) < 100


def test_one_chance_for_all_gives_a_row_major_tensor() -> None:
    def program(x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        drawn = torch.bernoulli(x.t(), 0.3)
        return x.t().bernoulli(p=0.4) + drawn, drawn.stride()

    results = []
    for fn in (program, armature.compile(program, fullgraph=True)):
        torch.manual_seed(3)
        results.append(fn(torch.rand(4, 5)))
    torch.testing.assert_close(results[1], results[0])
    assert results[1][0].stride() == results[0][0].stride()


WITHOUT_GENERATOR: dict[str, Callable[[Tensor], Tensor]] = {
    "rand": lambda x: x + torch.rand(2, 3, generator=None),
    "rand of a size": lambda x: x + torch.rand((2, 3), dtype=torch.float64, generator=None, device=x.device),
    "randn": lambda x: x + torch.randn(2, 3, generator=None, pin_memory=False),
    "randint": lambda x: x + torch.randint(0, 9, (2, 3), generator=None),
    "randint from 0": lambda x: x + torch.randint(9, (3,), generator=None),
    "randperm": lambda x: x + torch.randperm(3, generator=None),
    "rand_like": lambda x: torch.rand_like(x, generator=None),
    "randn_like": lambda x: torch.randn_like(x, dtype=torch.float64, generator=None),
    "randint_like": lambda x: torch.randint_like(x, 9, generator=None),
    "normal": lambda x: x + torch.normal(0.0, 1.0, (3,), generator=None),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid(), generator=None),
    "uniform_": lambda x: x.clone().uniform_(generator=None),
    "multinomial": lambda x: x.sigmoid().multinomial(2, generator=None),
}


@pytest.mark.parametrize("name", WITHOUT_GENERATOR)
def test_no_generator_is_torchs_own(name: str) -> None:
    results = []
    for fn in (WITHOUT_GENERATOR[name], armature.compile(WITHOUT_GENERATOR[name], fullgraph=True)):
        torch.manual_seed(3)
        results.append(fn(torch.linspace(-1, 1, 6).reshape(2, 3)))
    torch.testing.assert_close(results[1], results[0])
