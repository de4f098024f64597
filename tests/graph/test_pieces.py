"""Graphs with branches and loops: what stands around them is compiled, and branches too where no gradient is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_rows

import armature
from armature.pipeline.session import session


def branch(x):
    y = (x * 2).sin() + 1
    z = torch.cond(y.sum() > 0, lambda a: a.cos() * 2, lambda a: a.exp() + x, (y,))
    return (z * 3).tanh()


def branch_in_a_branch(x):
    y = x.sin()

    def inner(a):
        return torch.cond(a.max() > 0.5, lambda b: b * 2, lambda b: b / 2, (a + 1,)).cos()

    return torch.cond(y.sum() > 0, inner, lambda a: a.sqrt().exp(), (y * y,)) + y


def branches_in_a_row(x):
    for limit in (0.1, 0.5, 3.0):
        x = torch.cond(x.abs().max() > limit, lambda a: (a / 2).sin(), lambda a: (a * 3).cos(), (x,)) * 1.5
    return x


def branch_with_two_results(x):
    first, second = torch.cond(x.sum() > 0, lambda a: (a.sin(), a[0] * 2), lambda a: (a.cos(), a[1] * 3), (x,))
    return first * 2, second.exp()


def branch_after_a_write(x):
    y = x * 2
    y[0] = 1.0
    z = torch.cond(y.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (y,))
    return z, y * 3


def loop(x):
    y = (x * 2).sin() + 1
    _, z = while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (torch.zeros((), dtype=torch.int64), y))
    return (z * 3).tanh()


def steps(x):
    y = (x * 2).sin()
    carry, out = scan(lambda c, a: (c + a, c * a), y[0], y)
    return carry.cos(), out * 2


def rows(x):
    y = (x * 2).sin()
    return map_rows(lambda r, k: r * k + 1, y, x[0]) * 2


PROGRAMS = [
    branch, branch_in_a_branch, branches_in_a_row, branch_with_two_results, branch_after_a_write, loop, steps, rows,
]  # fmt: skip


def total(result: Any) -> torch.Tensor:
    return sum(t.sum() for t in (result if isinstance(result, tuple) else (result,)))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager_and_compiled(program: Callable[..., Any], training: bool) -> None:
    armature.reset()
    mine = armature.compile(program, fullgraph=True)
    for rows_, sign in ((2, 1.0), (2, -1.0), (3, 1.0), (4, -1.0)):
        x = (torch.linspace(0.1, 1, 3 * rows_).reshape(rows_, 3) * sign).requires_grad_(training)
        y = x.detach().clone().requires_grad_(training)
        found, expected = mine(x), program(y)
        torch.testing.assert_close(found, expected)
        if training:
            total(found).backward()
            total(expected).backward()
            torch.testing.assert_close(x.grad, y.grad)
    record = session().compilations[-1]
    assert len(record.graphs) >= 1
    assert all(g is not None for g in record.graphs)


def test_branches_are_compiled_where_no_gradient_is_wanted() -> None:
    armature.reset()
    mine = armature.compile(branch, fullgraph=True)
    assert mine(torch.ones(2, 3)).shape == (2, 3)
    (record,) = session().compilations
    assert len(record.graphs) == 4  # before, either branch, after


def test_the_gradient_of_a_branch_that_is_not_taken_is_zero() -> None:
    """As torch's own operator has it in eager mode; a plain `if` would give none."""

    def program(x, w):
        return torch.cond(x.sum() > 0, lambda: x * 2, lambda: x * w).sum() * 3

    results = []
    for function in (program, armature.compile(program, fullgraph=True)):
        x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        function(x, w).backward()
        results.append((x.grad, w.grad))
    assert results[0][1] is not None
    torch.testing.assert_close(results[1], results[0])


def test_a_back_end_of_the_program_is_given_the_branch() -> None:
    given = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        given.append([str(node.target) for node in graph.graph.nodes if "call" in node.op])
        return graph.forward

    armature.compile(branch, backend=backend, fullgraph=True)(torch.ones(2, 3))
    assert len(given) == 1
    assert "cond" in given[0]


def branch_before_a_write(x, w):
    z = torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x * 2,)) * w
    x.add_(1)
    return z


def branch_before_gradients(x, w):
    z = torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (w * 2,)) * w
    x.requires_grad_()
    return z * x


def loop_before_a_write(x, w):
    _, z = while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (torch.zeros((), dtype=torch.int64), x + 1))
    x.add_(1)
    return z * w + x


def new_tensor_before_a_write(x, w):
    y = torch.ones(3)
    y.requires_grad_()
    z = (y + x) * w
    x.add_(1)
    return z, y


CHANGED = [branch_before_a_write, branch_before_gradients, loop_before_a_write, new_tensor_before_a_write]


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("program", CHANGED)
def test_results_before_an_input_changes(program: Callable[..., Any], training: bool, backend: str) -> None:
    """The inputs' fakes are made again then, as they were before; the other results go with them."""
    if training and program is loop_before_a_write:
        pytest.skip("torch's loop has no gradient")
    armature.reset()
    results = []
    for function in (program, armature.compile(program, fullgraph=True, backend=backend)):
        x, w = torch.full((3,), 5.0), torch.full((3,), 2.0, requires_grad=training)
        found = function(x, w)
        if training:
            total(found).backward()
        results.append((found, x, x.requires_grad, w.grad))
    torch.testing.assert_close(results[1], results[0])
