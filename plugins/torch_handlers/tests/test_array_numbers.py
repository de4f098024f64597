"""Numbers that numpy computes from tensors of the graph, beside tensors: in the graph, with eager mode's dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import armature

X = torch.linspace(-1, 2, 6).reshape(2, 3)


def standardised(x: Tensor) -> Any:
    held = x.numpy()
    return (x - held.mean()) / held.std(), held.max() - x, x > held.mean(), held.min() <= x


def of_other_dtypes(x: Tensor) -> Any:
    wide, whole = x.numpy().astype(np.float64).sum(), x.numpy().argmax()
    return x * wide, x.double() + x.numpy().sum(), whole * x, x.sum() * wide, wide + x[0, 0]


def beside_integers(x: Tensor) -> Any:
    places, held = (x * 3).long(), x.numpy()
    return places + held.argmax(), places * held.max(), places / (held.argmin() + 1), places.sum() - held.mean()


def in_place(x: Tensor) -> Tensor:
    x -= x.numpy().mean()
    x /= x.numpy().std()
    return x


def with_gradients(x: Tensor) -> Tensor:
    weights = torch.ones(3, requires_grad=True)
    (weights * x * x.numpy().sum()).sum().backward()
    assert weights.grad is not None
    return weights.grad


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("program", [standardised, of_other_dtypes, beside_integers, in_place, with_gradients])
def test_in_one_graph(program: Callable[[Tensor], Any], backend: str) -> None:
    compiled = armature.compile(program, backend=backend, fullgraph=program is not with_gradients)
    for factor in (1, 2, -1):
        torch.testing.assert_close(compiled(X * factor), program(X * factor))


def test_narrow_floats_are_left_to_eager_mode() -> None:
    def narrow(x: Tensor) -> Tensor:
        return x.half() * x.numpy().mean()

    torch.testing.assert_close(armature.compile(narrow)(X), narrow(X), rtol=0, atol=0)
