"""Inputs of changing sizes whose memory is not dense: with and without gradients one graph, with eager's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature import config
from armature.pipeline.session import session

PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "column": lambda t: t[:, 0],
    "one of unbind": lambda t: t.unbind(-1)[1],
    "transposed": lambda t: (t * 1).t(),
    "columns": lambda t: (t * 1)[:, 1:3],
    "rows": lambda t: (t * 1)[1:],
    "expanded": lambda t: (t[:, :1] * 1).expand(-1, 3),
    "dense": lambda t: t * 1,
}
WRITABLE = ("transposed", "columns", "rows", "dense")


def read(x: Tensor) -> Any:
    return x.sin() * 2, x.stride()


def written(x: Tensor) -> Any:
    x.mul_(2)
    return x.sin(), x.stride(), x.is_contiguous()


def two(x: Tensor, y: Tensor) -> Any:
    x.mul_(2)
    return x * y, y.stride()


def first_columns(t: Tensor) -> tuple[Tensor, Tensor]:
    t = t * 1
    return t[:, 0], t[:, 1]


def check(
    run: Callable[..., Any], fn: Callable[..., Any], parts: Callable[[Tensor], Any], rows: int, grad: bool
) -> None:
    given = torch.rand(rows, 4)
    leaves = [given.clone().requires_grad_(grad) for _ in range(2)]
    found, expected = run(*parts(leaves[0])), fn(*parts(leaves[1]))
    torch.testing.assert_close(found[0], expected[0])
    assert found[1:] == expected[1:]
    assert found[0].stride() == expected[0].stride()
    if grad:
        found[0].sum().backward()
        expected[0].sum().backward()
        torch.testing.assert_close(leaves[0].grad, leaves[1].grad)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize(("part", "fn"), [*((part, read) for part in PARTS), *((part, written) for part in WRITABLE)])
def test_one_graph_for_all_sizes(part: str, fn: Callable[..., Any], backend: str, grad: bool) -> None:
    armature.reset()
    with config.patch(strict=True):
        quick = armature.compile(fn, backend=backend)
        for rows in (2, 3, 5, 4):
            check(quick, fn, lambda t: (PARTS[part](t),), rows, grad)
    assert len(session().compilations) <= 3


@pytest.mark.parametrize("grad", [False, True])
def test_two_columns_of_one_tensor(grad: bool) -> None:
    armature.reset()
    with config.patch(strict=True):
        quick = armature.compile(two, backend="eager")
        for rows in (2, 3, 5):
            check(quick, two, first_columns, rows, grad)
