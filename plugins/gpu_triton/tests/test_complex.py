"""Complex numbers as loops of their parts, through Triton's interpreter and on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import armature
from armature.lower.data import ExternCall
from armature.pipeline.session import session

aten = torch.ops.aten
VIEWS = {
    aten.view_as_real.default, aten.view_as_complex.default, aten._conj.default, aten.resolve_conj.default,
    aten.resolve_neg.default,
}  # fmt: skip


def rotated(x: Tensor, table: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.view_as_complex(table)).flatten(3).type_as(x)


def in_complex(formula: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def run(x: Tensor, y: Tensor) -> Tensor:
        out = formula(torch.view_as_complex(x), torch.view_as_complex(y))
        return torch.view_as_real(out) if out.is_complex() else out

    return run


PROGRAMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mul": in_complex(lambda x, y: x * y + 2j),
    "div": in_complex(lambda x, y: x / y + x.reciprocal()),
    "conj": in_complex(lambda x, y: (x.conj() * y).conj().imag),
    "abs": in_complex(lambda x, y: (x * y).abs() + x.angle()),
    "sgn": in_complex(lambda x, y: (x * y).sgn()),
    "exp": in_complex(lambda x, y: (x * y).exp() * torch.polar(x.abs(), y.real)),
    "sums": in_complex(lambda x, y: (x * y).sum(0) + (x * y).mean()),
    "joins": in_complex(lambda x, y: torch.cat([x * y, y.mT.mT], 1)[:, 2:] * 2),
}


def check(program: Callable[[Tensor, Tensor], Tensor], *inputs: Tensor) -> None:
    """The same as eager mode forward and backward, and nothing but views is called."""
    runs = []
    for run in (program, armature.compile(program, fullgraph=True)):
        given = [x.clone().requires_grad_() for x in inputs]
        out = run(*given)
        runs.append([out, *torch.autograd.grad(out, given, torch.ones_like(out))])
    for eager, found in zip(*runs, strict=True):
        torch.testing.assert_close(found, eager, rtol=1e-4, atol=1e-4)
        assert found.stride() == eager.stride()
    steps = [step for graph in session().compilations[-1].graphs for step in graph.plan.steps]
    assert {step.target for step in steps if isinstance(step, ExternCall)} <= VIEWS


@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_of_parts(interpreted: None, name: str) -> None:
    check(PROGRAMS[name], torch.randn(3, 5, 2), torch.randn(3, 5, 2))


def test_rotary_embeddings(interpreted: None) -> None:
    check(rotated, torch.randn(2, 5, 3, 8), torch.randn(1, 5, 1, 4, 2))


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_loops_of_parts_on_a_gpu(fresh: None, name: str, dtype: torch.dtype) -> None:
    check(PROGRAMS[name], *torch.randn(2, 300, 70, 2, dtype=dtype, device="cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["mul", "div"])
def test_infinite_numbers_on_a_gpu(fresh: None, name: str) -> None:
    each = torch.cartesian_prod(*[torch.tensor([0.0, 1.0, -2.5, math.inf, -math.inf, math.nan], device="cuda")] * 2)
    x, y = (part.contiguous() for part in torch.broadcast_tensors(each[:, None], each[None]))
    with torch.no_grad():
        eager, found = PROGRAMS[name](x, y), armature.compile(PROGRAMS[name], fullgraph=True)(x, y)
    torch.testing.assert_close(found, eager, equal_nan=True)


@pytest.mark.gpu
def test_rotary_embeddings_on_a_gpu(fresh: None) -> None:
    check(rotated, torch.randn(2, 50, 8, 64, device="cuda"), torch.randn(1, 50, 1, 32, 2, device="cuda"))
