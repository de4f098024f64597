"""Cumulative sums, products and extremes: by the reference, and in kernels of the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session
from armature.testing.lowering_kit import Kit

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.bfloat16]


def counts() -> tuple[int, int]:
    """Kernels and calls of the last graph."""
    (graph,) = session().compilations[-1].graphs
    return graph.program.kernel_count, graph.program.extern_count


def with_nan(x: Tensor) -> Tensor:
    """Some NaN, infinities, zeros of both signs and equal values."""
    row = x.view(-1)
    row[1::5], row[3::11], row[5::13], row[7::17], row[20::23] = 0.0, -0.0, math.inf, -math.inf, math.nan
    return x


@pytest.mark.parametrize("op", [aten.cummax.default, aten.cummin.default], ids=str)
def test_extremes(kit: Kit, op: torch._ops.OpOverload) -> None:
    x = with_nan(torch.randn(4, 30))
    for given in (x, x.t(), x[:, ::2], x.bfloat16(), x.double(), torch.randint(0, 4, (4, 30)), torch.tensor(2.0)):
        for dim in {0, given.ndim - 1 if given.ndim else 0}:
            kit.check(op, given, dim)
    kit.check(op, x > 0, 1, extern=True)


def test_logarithms_of_sums(kit: Kit) -> None:
    x = with_nan(torch.randn(4, 30) * 30)
    for given in (x, x.t(), x[:, ::2], x.bfloat16(), x.double(), torch.tensor(2.0), torch.tensor(-math.inf)):
        for dim in (0, -1):
            kit.check(aten.logcumsumexp.default, given, dim)
    kit.check(aten.logcumsumexp.default, torch.ones(0, 3), 1, extern=True)
    kit.check(aten.logcumsumexp.default, torch.ones(3, dtype=torch.complex64), 0, extern=True)


def centred(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "sum along rows": lambda x: (x * 2).cumsum(-1) + 1,
    "sum along columns": lambda x: (x * 2).cumsum(0) + 1,
    "product": lambda x: (x / 2).cumprod(-1),
    "largest": lambda x: x.cummax(-1),
    "smallest along columns": lambda x: x.cummin(0),
    "positions alone": lambda x: x.cummin(-1).indices,
    "after a reduction": lambda x: x.softmax(-1).cumsum(-1),
    "before a reduction": lambda x: (x.softmax(-1).cumsum(-1) < 0.5).sum(-1),
    "of a flipped row": lambda x: x.flip(-1).cumsum(-1).flip(-1),
    "places of a mask": lambda x: ((x > 0).cumsum(-1) - 1).masked_fill(x <= 0, -1),
    "scan of a scan": lambda x: x.cumsum(-1).cummax(-1).values,
    "in each pass of several that reduce": lambda x: centred(centred(x.cummax(-1).values).cummax(-1).values),
    "padded": lambda x: torch.nn.functional.pad(x, (3, 2)).cumsum(-1),
}
SHAPES = [(37, 83), (64, 512), (5, 7, 3), (9, 8, 20), (3, 4100), (5,), (1, 64)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_scan(name: str, shape: tuple[int, ...]) -> None:
    program, x = PROGRAMS[name], torch.randn(shape)
    found, expected = armature.compile(program, fullgraph=True)(x), program(x)
    torch.testing.assert_close(found, expected)
    assert counts()[1] == 0
    if isinstance(expected, Tensor):
        assert found.stride() == expected.stride()


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.int8], ids=str)
def test_dtypes(dtype: torch.dtype) -> None:
    x = torch.randn(9, 70).mul(3).to(dtype)
    for program in (lambda x: x.cumsum(-1), lambda x: x.cumprod(0), lambda x: x.cummax(-1), lambda x: x.t().cummin(-1)):
        torch.testing.assert_close(armature.compile(program, fullgraph=True)(x), program(x))


def test_nan_and_equal_values() -> None:
    x = with_nan(torch.randn(6, 70))
    for program in (lambda x: x.cummax(-1), lambda x: x.cummin(-1), lambda x: x.cummax(0), lambda x: x.cummin(0)):
        found, expected = armature.compile(program, fullgraph=True)(x), program(x)
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert torch.equal(found.values.signbit(), expected.values.signbit())


def test_sums_of_floats_are_as_exact_as_in_eager() -> None:
    x = torch.rand(3, 100_000) + 1
    exact = x.double().cumsum(-1)
    found = armature.compile(lambda x: x.cumsum(-1), fullgraph=True)(x)
    assert ((found - exact).abs() / exact).max() < 1e-7
    assert counts() == (1, 0)


def test_a_length_that_is_not_known() -> None:
    compiled = armature.compile(lambda x: (x.cumsum(1), x.cummax(1)), fullgraph=True, dynamic=True)
    for size in (5, 64, 300):
        x = torch.randn(3, size)
        torch.testing.assert_close(compiled(x), (x.cumsum(1), x.cummax(1)))
    assert counts()[1] == 0


@pytest.mark.parametrize("name", ["sum along rows", "product", "after a reduction"])
def test_gradients(name: str) -> None:
    x, weight = torch.randn(5, 40), torch.randn(5, 40)
    grads = []
    for program in (PROGRAMS[name], armature.compile(PROGRAMS[name], fullgraph=True)):
        given = x.clone().requires_grad_()
        (program(given) * weight).sum().backward()
        grads.append(given.grad)
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-5)


def test_gradients_of_extremes() -> None:
    x, grads = torch.randn(5, 40), []
    for program in (lambda x: x.cummax(-1).values, armature.compile(lambda x: x.cummax(-1).values, fullgraph=True)):
        given = x.clone().requires_grad_()
        (program(given) * torch.arange(40)).sum().backward()
        grads.append(given.grad)
    torch.testing.assert_close(grads[1], grads[0])
