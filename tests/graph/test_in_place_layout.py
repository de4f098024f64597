"""A tensor written to in place keeps its layout, also where the functional operator would choose another one."""

from __future__ import annotations

import pytest
import torch

import armature
from armature.graph.in_place import functional_form, loses_layout


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
