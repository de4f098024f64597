"""A tensor written to in place keeps its layout, also where the functional operator would choose another one."""

from __future__ import annotations

import pytest
import torch

import armature
from armature.graph.in_place import functional_form, loses_layout
from armature.pipeline.session import session


def filled(t):
    w = t.clone()
    w.masked_fill_(w > 3, 0)
    return w, w[0], w * 2


def filled_and_strided(t):
    w = t.clone()
    w.masked_fill_(w > 3, 0)
    return w.as_strided((6,), (1,)), w.t().reshape(-1)


def written_through_strides(t):
    w = t.clone()
    w.masked_fill_(w > 3, 0)
    v = w.as_strided((6,), (1,))
    v[1] = 77
    return w + 1


def pointwise(t):
    w = t.clone()
    w.mul_(2).relu_()
    w += 1
    return w, w.as_strided((6,), (1,))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("program", [filled, filled_and_strided, written_through_strides, pointwise])
@pytest.mark.filterwarnings("ignore:Error detected in")
def test_layouts_are_kept(program, backend, grad):
    def run(fn):
        results = fn(torch.arange(6.0).view(3, 2).requires_grad_(grad).t())
        return [(each.tolist(), each.stride()) for each in results]

    assert run(armature.compile(program, backend=backend)) == run(program)


def test_pointwise_operators_lose_nothing():
    kept: list[bool] = []

    def backend(graph, inputs):
        kept.append(loses_layout(graph.graph))
        return graph.forward

    armature.compile(pointwise, backend=backend)(torch.arange(6.0).view(3, 2).t())
    armature.compile(filled, backend=backend)(torch.arange(6.0).view(3, 2).t())
    armature.compile(filled, backend=backend)(torch.arange(6.0).view(2, 3))
    assert kept == [False, True, False]


def test_forms():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    assert functional_form(graph.call_method("mul_", (x, 2))) is torch.Tensor.mul
    assert functional_form(graph.call_method("mul", (x, 2))) is None
    assert functional_form(graph.call_method("__len__", (x,))) is None


def columns(x, y):
    x[:, 1:3].mul_(2)
    return x + 1


def one_column(x, y):
    x[:, 0] += y[:, 0]
    return x.sum(0)


def part_of_a_copy(x, y):
    t = x.clone()
    t[:, ::2].add_(y[:, ::2])
    return t


def part_of_a_transpose(x, y):
    t = (x + y).t()
    t[1:3].mul_(3)
    return t, t * 2


def where_a_mask_says(x, y):
    x[1:, 1:3].masked_fill_(y[1:, 1:3] > 0, 0)
    return x


def diagonal(x, y):
    t = x * 1
    t.t()[:, 1].mul_(y[1])
    t.diagonal().fill_(0)
    return t.sum()


def read_after(x, y):
    v = x[:, 1:3]
    v.mul_(2)
    return v.reshape(-1), x


def given_after(x, y):
    t = x * 1
    v = t[:, 1]
    v.relu_()
    return t, v


COMPILED = (columns, one_column, part_of_a_copy, part_of_a_transpose, where_a_mask_says, diagonal)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", [*COMPILED, read_after, given_after])
def test_part_of_a_tensor_is_written_to_in_the_compiled_graph(program, dynamic):
    armature.reset()
    run = armature.compile(program, fullgraph=True, dynamic=dynamic)
    found, wanted = ([torch.arange(25.0).view(5, 5) - 9, torch.arange(25.0).view(5, 5).cos()] for _ in range(2))
    with torch.no_grad():
        for _ in range(2):
            results, expected = run(*found), program(*wanted)
            torch.testing.assert_close((results, found), (expected, wanted))
            mine, eager = (one if isinstance(one, tuple) else (one,) for one in (results, expected))
            assert [one.stride() for one in mine] == [one.stride() for one in eager]
            mine[-1].add_(1), eager[-1].add_(1)  # seen wherever memory is shared
            torch.testing.assert_close((results, found), (expected, wanted))
    assert bool(session().compilations[-1].graphs) == (program in COMPILED)


@pytest.mark.parametrize("program", [part_of_a_copy, part_of_a_transpose, diagonal])
def test_gradients_through_parts_that_were_written_to(program):
    seen = []
    for run in (armature.compile(program, fullgraph=True), program):
        given = [(torch.arange(25.0).view(5, 5) - 9).requires_grad_(), torch.ones(5, 5).cumsum(0).requires_grad_()]
        results = run(*given)
        sum(one.square().sum() for one in (results if isinstance(results, tuple) else (results,))).backward()
        seen.append([one.grad for one in given])
    torch.testing.assert_close(*seen)
