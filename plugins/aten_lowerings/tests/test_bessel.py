"""Bessel functions as loops: the polynomials of torch's kernels, at zeros, poles, infinities and NaN too."""

from __future__ import annotations

import math

import pytest
import torch

import armature
from armature.pipeline.session import session
from armature.plugin_api import overload
from armature_aten_lowerings.bessel import FUNCTIONS

SPECIAL = (0.0, -0.0, 1e-6, 2.0, 5.0, 8.0, -3.0, math.inf, -math.inf, math.nan)


def has_kernel(op, dtype):
    """Whether torch computes the function in a dtype: most have no kernel for 16 bits."""
    try:
        op(torch.ones(1, dtype=dtype))
    except NotImplementedError:
        return False
    return True


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_of_the_kernel(name, dtype):
    op = overload(name)
    x = torch.cat([torch.linspace(-12, 12, 121), torch.linspace(0.01, 60, 120), torch.tensor(SPECIAL)])
    armature.reset()
    if dtype.itemsize == 2 and not has_kernel(op, dtype):
        with pytest.raises(NotImplementedError, match="not implemented for"):
            armature.compile(lambda v: op(v))(x.to(dtype))
        return
    found, expected = armature.compile(lambda v: op(v))(x.to(dtype)), op(x.to(dtype))
    assert session().totals().extern == 0 and found.dtype == expected.dtype
    rtol = {torch.float32: 3e-5, torch.float64: 1e-12, torch.bfloat16: 8e-3}[dtype]
    torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol / 4, equal_nan=True)


def test_gradients_are_loops_too():
    x = torch.linspace(-9, 9, 37, requires_grad=True)
    armature.reset()
    for function in (torch.i0, torch.special.i0e, torch.special.i1, torch.special.i1e):
        (expected,) = torch.autograd.grad(function(x).sum(), x)
        (found,) = torch.autograd.grad(armature.compile(lambda v, f=function: f(v))(x).sum(), x)
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-6)
    assert session().totals().extern == 0
