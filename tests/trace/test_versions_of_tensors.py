"""`_version`: how often a tensor was written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session


def made(x: Tensor) -> list[Any]:
    y = x + 1
    seen = [y._version]
    y.add_(1)
    seen.append(y._version)
    y[0] = 3
    y *= 2
    return [y, *seen, y._version, torch.zeros(3)._version, torch.empty(2).fill_(1)._version, x.sum()._version]


def of_random(x: Tensor) -> list[Any]:
    y = torch.nn.functional.dropout(x, 0.5)
    return [y._version, torch.randn(3)._version, torch.nn.functional.relu(x + 1, inplace=True)._version]


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("program", [made, of_random])
def test_of_what_the_function_computes(program: Callable[[Tensor], Any], gradient: bool, backend: str) -> None:
    armature.reset()
    quick = armature.compile(program, backend=backend, fullgraph=True)
    x = torch.ones(3, requires_grad=gradient)
    torch.testing.assert_close(quick(x), program(x))


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_of_arguments(backend: str) -> None:
    """It is asked again in each call, and does not compile the function each time."""
    armature.reset()

    def counted(x: Tensor, y: Tensor) -> Any:
        return x + x._version, x._version, y._version

    quick = armature.compile(counted, backend=backend, fullgraph=True)
    x, y = torch.ones(3), torch.ones(3)
    for _ in range(8):
        torch.testing.assert_close(quick(x, y), counted(x, y))
        x.add_(1)
    assert len(session().compilations) <= 3
    y.add_(1)
    torch.testing.assert_close(quick(x, y), counted(x, y))


def after_a_write(x: Tensor) -> Any:
    x.add_(1)
    return x * 2, x._version


def of_a_view(x: Tensor) -> Any:
    y = x[1:]
    y.add_(1)
    return y._version, y * 2


def of_data(x: Tensor) -> Any:
    y = x + 1
    z = y.data
    y.add_(1)
    return z._version, y._version, z


@pytest.mark.parametrize("program", [after_a_write, of_a_view, of_data])
def test_where_memory_is_shared(program: Callable[[Tensor], Any]) -> None:
    armature.reset()
    quick = armature.compile(program, backend="eager")
    ours, theirs = torch.ones(3), torch.ones(3)
    for _ in range(3):
        torch.testing.assert_close(quick(ours), program(theirs), rtol=0, atol=0)


def test_of_an_inference_tensor() -> None:
    armature.reset()
    quick = armature.compile(lambda x: x._version, backend="eager")
    with torch.inference_mode(), pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
        quick(torch.ones(3))
