"""Operators that give nothing but may raise are called also where nobody reads a result of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from packaging.version import Version

import armature
from armature.testing.differential import difference
from armature.torch_abi import versions

SINGULAR = torch.zeros(3, 3)
REGULAR = torch.eye(3) + torch.linspace(0, 1, 9).reshape(3, 3)
PROGRAMS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: torch.linalg.inv(x) + 1,
    lambda x: torch.linalg.solve(x, x.sin()) * 2,
    lambda x: torch.linalg.cholesky(x @ x.mT),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=["inv", "solve", "cholesky"])
@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_singular_matrices_are_told(program: Callable[[torch.Tensor], torch.Tensor], grad: bool) -> None:
    compiled = armature.compile(program, fullgraph=True)
    mine, theirs = (REGULAR.clone().requires_grad_(grad) for _ in range(2))
    found, expected = compiled(mine), program(theirs)
    assert difference(expected, found) <= 1e-5
    if grad:
        found.sum().backward()
        expected.sum().backward()
        assert difference(theirs.grad, mine.grad) <= 1e-4
        if versions.of_process().torch < Version("2.13"):
            return  # AOTAutograd of these loses the check
    with pytest.raises(torch.linalg.LinAlgError) as eager:
        program(SINGULAR.clone().requires_grad_(grad))
    with pytest.raises(torch.linalg.LinAlgError) as told:
        compiled(SINGULAR.clone().requires_grad_(grad))
    assert str(told.value) == str(eager.value)


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("backend", ["eager", None], ids=["operators", "kernels"])
def test_assertions_on_tensors(grad: bool, backend: str | None) -> None:
    def asserts(x: torch.Tensor) -> torch.Tensor:
        torch._assert((x > 0).all(), "not positive")
        return x * x

    compiled = armature.compile(asserts, fullgraph=True, **({"backend": backend} if backend else {}))
    assert difference(*(fn(torch.ones(4).requires_grad_(grad)) for fn in (asserts, compiled))) == 0
    with pytest.raises(AssertionError, match="not positive"):
        compiled(-torch.ones(4).requires_grad_(grad))


def masked_write(x: torch.Tensor, mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return x.index_put((mask,), values) * 2


def test_derivatives_that_read_values_of_tensors() -> None:
    """Of a masked write: how many values were written is known only when it runs, so that the backward graph runs
    operator by operator."""
    arguments: list[Any] = [torch.randn(5, 4), torch.tensor([True, False, True, True, False]), torch.randn(3, 4)]
    results = []
    with armature.config.patch(strict=False):
        for fn in (masked_write, armature.compile(masked_write, fullgraph=True)):
            x, mask, values = (a.clone() for a in arguments)
            out = fn(x.requires_grad_(), mask, values.requires_grad_())
            out.sin().sum().backward()
            results.append((out, x.grad, values.grad))
    assert difference(*results) <= 1e-5


@pytest.mark.parametrize("index", [torch.tensor(2), torch.tensor([1, -1]), torch.tensor([], dtype=torch.long)])
def test_take(index: torch.Tensor) -> None:
    results = []
    for fn in (torch.take, armature.compile(lambda x, i: torch.take(x, i), fullgraph=True)):
        x = torch.linspace(0, 1, 6).reshape(2, 3).requires_grad_()
        out = fn(x, index)
        out.sum().backward()
        results.append((out, x.grad))
    assert difference(*results) == 0
