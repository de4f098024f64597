"""Arguments that kernels of libraries would copy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx
from torch.nn import functional

import armature
from armature.graph.data import GraphKind
from armature.lower.data import ExternCall
from armature.pipeline.session import session
from armature.schedule.data import Release
from armature.testing.differential import difference

aten = torch.ops.aten
BACKWARD = aten._embedding_bag_backward.default
TABLES = 3


def looked_up(x: Tensor, indices: Tensor, *tables: Tensor) -> Tensor:
    """Rows of several tables and another one."""
    found = [functional.embedding_bag(indices[:, k], table, mode="sum") for k, table in enumerate(tables)]
    return torch.stack([x, *found], 1)


def multiplied(x: Tensor, indices: Tensor, *tables: Tensor) -> Tensor:
    rows = looked_up(x.cos(), indices, *tables)
    return torch.bmm(rows, rows.transpose(1, 2))


def multiplied_by_fixed(x: Tensor, indices: Tensor, *tables: Tensor) -> Tensor:
    """The gradient of the rows is a product, not a sum."""
    rows = looked_up(x.cos(), indices, *tables)
    return torch.bmm(rows, rows.detach().transpose(1, 2))


def returned(x: Tensor, indices: Tensor, *tables: Tensor) -> Tensor:
    """A part of the gradient is the gradient of an input, and has eager mode's strides."""
    rows = looked_up(x, indices, *tables)
    return torch.bmm(rows, rows.transpose(1, 2))


def calls_of(function: Callable[..., Tensor]) -> list[fx.Node]:
    """The calls of the tables' gradients, after a comparison with eager mode."""
    armature.reset()
    given = [torch.randn(8, 16) / 8, *(torch.randn(TABLES, 10, 16) / 8)]
    indices = torch.randint(0, 10, (8, TABLES, 4))
    found = []
    for run in (function, armature.compile(function, fullgraph=True)):
        x, *tables = (each.clone().requires_grad_() for each in given)
        run(x, indices, *tables).square().sum().backward()
        found.append([each.grad for each in (x, *tables)])
    assert difference(*found) <= 1e-4
    (graph,) = (one for one in session().compilations[-1].graphs if one.aten.kind is GraphKind.BACKWARD)
    return graph.aten.module.graph.find_nodes(op="call_function", target=BACKWARD)


def test_parts_of_a_sum_are_computed_apart() -> None:
    calls = calls_of(multiplied)
    assert len(calls) == TABLES
    assert all(call.args[0].target is aten.add.Tensor and call.args[0].meta["val"].is_contiguous() for call in calls)


def test_each_part_is_freed_before_the_next_call() -> None:
    calls_of(multiplied)
    steps = session().compilations[-1].graphs[-1].plan.steps
    places = [k for k, step in enumerate(steps) if isinstance(step, ExternCall) and step.target is BACKWARD]
    parts = [one.args[0].buffer for one in steps if isinstance(one, ExternCall) and one.target is BACKWARD]
    freed = {step.buffer: k for k, step in enumerate(steps) if isinstance(step, Release)}
    assert all(freed[part] < place for part, place in zip(parts, places[1:], strict=False))


@pytest.mark.parametrize("function", [multiplied_by_fixed, returned])
def test_the_whole_is_kept(function: Callable[..., Tensor]) -> None:
    assert {call.args[0].target for call in calls_of(function)} == {aten.select.int}
