"""Writes at computed places, angles, and derivatives of the gamma function: as eager mode has them, without its kernels."""

from __future__ import annotations

import math

import pytest
import torch

import armature
from armature.pipeline.session import session

INDEX = torch.tensor([3, 0, 3, 1])
ROWS = torch.arange(20.0).reshape(5, 4).sin()
SOURCE = torch.arange(16.0).reshape(4, 4).cos()


def compiled(function, *args):
    armature.reset()
    found = armature.compile(function)(*args)
    return found, session().totals().extern


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dim", [0, -1])
def test_index_reduce(dim, reduce, include_self):
    rows = ROWS if dim == 0 else ROWS.T.contiguous()

    def program(x, index, source):
        return x.index_reduce(dim, index, source, reduce, include_self=include_self)

    found, calls = compiled(program, rows, INDEX, SOURCE)
    torch.testing.assert_close(found, program(rows, INDEX, SOURCE))
    assert calls == 0


@pytest.mark.parametrize("source", [SOURCE[:2], 0.5])
@pytest.mark.parametrize("reduce", ["add", "multiply"])
def test_scatter_with_a_reduction(reduce, source):
    places = torch.tensor([[0, 1, 2, 0], [0, 4, 2, 3]])

    def program(x, index):
        return x.scatter(0, index, source, reduce=reduce)

    found, calls = compiled(program, ROWS, places)
    torch.testing.assert_close(found, program(ROWS, places))
    assert calls == 0


@pytest.mark.parametrize("accumulate", [False, True])
def test_put(accumulate):
    def program(x, index, source):
        return x.put(index, source, accumulate)

    given = ROWS, torch.tensor([[3, -1], [7, 8]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    found, calls = compiled(program, *given)
    torch.testing.assert_close(found, program(*given))
    assert calls == 0


ANGLED = torch.tensor([-1.0, -0.0, 0.0, 2.0, math.nan, -math.inf])


@pytest.mark.parametrize("x", [ANGLED, ANGLED.double(), ANGLED.bfloat16(), torch.tensor([-2, 0, 3]), ANGLED[:0]])
def test_angle(x):
    found, calls = compiled(torch.angle, x)
    torch.testing.assert_close(found, torch.angle(x), rtol=0, atol=0, equal_nan=True)
    assert calls == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("order", [0, 1])
def test_derivatives_of_lgamma(order, dtype):
    special = torch.tensor([0.0, -0.0, 1.0, 10.0, 1e20, math.nan, math.inf] + ([-1.0, -7.0] if order == 0 else []))
    x = torch.cat([torch.linspace(-9.7, 30, 200), special]).to(dtype)

    def program(v):
        return torch.polygamma(order, v)

    found, calls = compiled(program, x)
    rtol = 1e-4 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(found, program(x), rtol=rtol, atol=rtol / 10, equal_nan=True)
    assert calls == 0


def test_the_gradient_of_lgamma_is_loops():
    x = torch.linspace(0.3, 20, 50, requires_grad=True)
    armature.reset()
    (found,) = torch.autograd.grad(armature.compile(lambda v: torch.lgamma(v))(x).sum(), x)
    torch.testing.assert_close(found, torch.digamma(x.detach()), rtol=1e-5, atol=1e-6)
    assert session().totals().extern == 0
