"""Cumulative sums and products along few long rows: cut into pieces, in the interpreter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session

pytestmark = pytest.mark.usefixtures("interpreted")


def counts() -> tuple[int, int]:
    """Kernels and calls of the last graph."""
    (graph,) = session().compilations[-1].graphs
    return graph.program.kernel_count, graph.program.extern_count


PROGRAMS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[], Tensor]]] = {
    "rows": (lambda x: x.cumsum(1), lambda: torch.randn(3, 8192)),
    "rows that do not come out even": (lambda x: x.cumsum(-1), lambda: torch.randn(2, 4999)),
    "columns": (lambda x: x.cumsum(0), lambda: torch.randn(4352, 3)),
    "columns that do not come out even": (lambda x: x.cumsum(0), lambda: torch.randn(4099, 2)),
    "an axis in between": (lambda x: x.cumsum(1), lambda: torch.randn(2, 4097, 3)),
    "half precision": (lambda x: x.cumsum(1), lambda: torch.randn(2, 4608).bfloat16()),
    "products": (lambda x: x.cumprod(1), lambda: 1 + torch.randn(2, 5000) / 1000),
    "logarithms of sums": (lambda x: x.logcumsumexp(1), lambda: torch.randn(2, 5000) * 9),
    "logarithms of sums, columns": (lambda x: (x * 2).logcumsumexp(0), lambda: torch.randn(4352, 3)),
    "places of a mask": (lambda x: (x > 0).cumsum(0) - 1, lambda: torch.randn(6000)),
    "of a transposed tensor": (lambda x: x.t().cumsum(1), lambda: torch.randn(4200, 2)),
    "around it": (lambda x: (x.exp().cumsum(1) * 2).sin(), lambda: torch.randn(2, 4608) / 100),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_long_rows_are_cut(name: str) -> None:
    program, make = PROGRAMS[name]
    x = make()
    wide = torch.float32 if x.dtype == torch.bfloat16 else x.dtype
    found = armature.compile(program, fullgraph=True)(x)
    expected = program(x.to(wide)).to(found.dtype)
    torch.testing.assert_close(found, expected, **({"rtol": 1e-3, "atol": 1e-3} if x.dtype == torch.float32 else {}))
    assert found.stride() == program(x).stride()
    kernels, calls = counts()
    assert kernels == (4 if name == "rows that do not come out even" else 3) and calls == 0


def test_a_single_row_stays_a_call_that_reads_it_once() -> None:
    x = torch.randn(10_000)
    torch.testing.assert_close(armature.compile(lambda x: x.cumsum(0), fullgraph=True)(x), x.cumsum(0))
    assert counts() == (0, 1)


def test_a_length_that_is_not_known() -> None:
    compiled = armature.compile(lambda x: x.cumsum(1), fullgraph=True, dynamic=True)
    for size in (5000, 6144, 9000):
        x = torch.randn(2, size)
        torch.testing.assert_close(compiled(x), x.cumsum(1), rtol=1e-3, atol=1e-3)
    assert counts()[1] == 0


def test_gradients() -> None:
    x = torch.randn(2, 5000, requires_grad=True)
    (armature.compile(lambda x: x.cumsum(1), fullgraph=True)(x) * torch.arange(5000)).sum().backward()
    expected = torch.arange(5000.0).flip(0).cumsum(0).flip(0).expand(2, -1)
    torch.testing.assert_close(x.grad, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(4, 70), (70, 4), (3, 5, 7)], ids=str)
def test_logarithms_of_sums_are_parts_of_kernels(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape) * 50
    x.view(-1)[::9], x.view(-1)[4::25] = -torch.inf, torch.inf

    def program(x: Tensor) -> Tensor:
        return (x / 2).logcumsumexp(1) + 1

    torch.testing.assert_close(armature.compile(program, fullgraph=True)(x), program(x))
    assert counts() == (1, 0)
