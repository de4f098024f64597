"""`x[i] += y`: one write, with eager's values and memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session

aten = torch.ops.aten
WRITES = (aten.select_scatter.default, aten.slice_scatter.default)


def entry(x: Tensor, y: Tensor) -> Tensor:
    x[:, 0] += y[:, 0]
    return x.sum(0)


def columns(x: Tensor, y: Tensor) -> Tensor:
    x[:, 1:4:2] *= y[:, 1:4:2]
    return x @ y


def of_a_copy(x: Tensor, y: Tensor) -> Tensor:
    t = x * 1
    t[2] -= y[0]
    return t


def assigned(x: Tensor, y: Tensor) -> Tensor:
    x[1] = x[1]
    return x + y


def returned_apart(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x, x.select_scatter(x[1], 0, 1)


def another_part(x: Tensor, y: Tensor) -> Tensor:
    x[1] = x[2]
    x[0:2] = x[2:4]
    return x + y


@pytest.mark.parametrize(
    ("fn", "count"),
    [(entry, 1), (columns, 1), (of_a_copy, 1), (assigned, 0), (returned_apart, 1), (another_part, 2)],
)
def test_what_is_written_twice_is_written_once(fn: Callable[..., Tensor | tuple[Tensor, ...]], count: int) -> None:
    armature.reset()
    run = armature.compile(fn, fullgraph=True)
    found, wanted = ([torch.arange(25.0).view(5, 5), torch.arange(25.0).view(5, 5).cos()] for _ in range(2))
    with torch.no_grad():
        for _ in range(2):
            results, expected = run(*found), fn(*wanted)
            torch.testing.assert_close((results, found), (expected, wanted))
            for one in (results, expected):
                (one[-1] if isinstance(one, tuple) else one).add_(1)
            torch.testing.assert_close((results, found), (expected, wanted))
    [graph] = session().compilations[-1].graphs
    assert sum(node.target in WRITES for node in graph.aten.module.graph.nodes) == count
