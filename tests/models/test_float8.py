"""Programs with tensors of 8-bit floats, compiled for the CPU: scaled activations and weights, caches."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def scaled_by_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True).float() / 448
    return (x.float() / scale).clamp(-448, 448).to(E4M3), scale


def unscaled(x: Tensor) -> Tensor:
    found, scale = scaled_by_rows(x)
    return (found.float() * scale).to(x.dtype)


def for_gradients(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.to(E5M2), x.to(E5M2).to(E4M3).double()


def into_a_cache(x: Tensor) -> tuple[Tensor, Tensor]:
    cache = torch.zeros(32, x.shape[-1]).to(E4M3)
    cache[torch.arange(x.shape[0]) * 2] = x.to(E4M3)
    return cache, cache[:5].to(torch.bfloat16) * 2


def joined_and_turned(x: Tensor) -> Tensor:
    part = x.to(E4M3)
    return torch.cat([part, part.flip(0)], 1).t().contiguous()


PROGRAMS = (scaled_by_rows, unscaled, for_gradients, into_a_cache, joined_and_turned)


@pytest.fixture(autouse=True)
def fresh() -> None:
    armature.reset()
    torch.manual_seed(0)


def bits(found: Tensor) -> Tensor:
    return found.view(torch.uint8) if found.dtype in (E4M3, E5M2) else found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_eagers(program: Callable[[Tensor], object], dtype: torch.dtype) -> None:
    compiled = armature.compile(program, fullgraph=True)
    for rows in (12, 7):  # the second call has a size that varies
        x = (torch.randn(rows, 40) * 100).to(dtype)
        found, expected = compiled(x), program(x)
        pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
        for ours, theirs in pairs:
            assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
            torch.testing.assert_close(bits(ours), bits(theirs), rtol=0, atol=0)


@pytest.mark.parametrize("program", [scaled_by_rows, unscaled, for_gradients, joined_and_turned])
def test_they_are_loops(program: Callable[[Tensor], object]) -> None:
    armature.compile(program, fullgraph=True)(torch.randn(12, 40))
    (graph,) = session().compilations[-1].graphs
    assert graph.program.extern_count == 0


def test_the_cast_of_a_gradient_is_eagers() -> None:
    def program(x: Tensor) -> Tensor:
        return (x.to(E4M3).to(torch.float32) * x).sum()

    x = torch.randn(50, requires_grad=True)
    program(x).backward()
    expected, x.grad = x.grad, None
    armature.compile(program, fullgraph=True)(x).backward()
    torch.testing.assert_close(x.grad, expected)
