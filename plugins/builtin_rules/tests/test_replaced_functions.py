"""Functions and classes of torch that a program has replaced when its code is compiled, and puts back later."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from armature.api import public as api

X = torch.tensor([-1.0, 2.0])
IDENTITY = nn.Identity


def counted(x: Tensor, inplace: bool = False) -> Tensor:
    return torch.relu(x) + 100


@functools.wraps(F.relu)
def wrapped(x: Tensor, inplace: bool = False) -> Tensor:
    return torch.relu(x) + 200


def made(by: int) -> Callable[..., Tensor]:
    return lambda x, inplace=False: torch.relu(x) + by


class Other(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


@pytest.mark.parametrize("other", [counted, wrapped, made(300)], ids=["function", "wraps", "closure"])
@pytest.mark.parametrize("program", [lambda x: F.relu(x) + 1, nn.ReLU()], ids=["by name", "in a module of torch"])
def test_a_function_that_is_put_back(program: Callable[..., Any], other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api.reset()
    compiled = api.compile(program, backend="eager", fullgraph=True)
    with monkeypatch.context() as patch:
        patch.setattr(F, "relu", other)
        torch.testing.assert_close(compiled(X), program(X))
        patch.setattr(F, "relu", made(7))
        torch.testing.assert_close(compiled(X), program(X))
    torch.testing.assert_close(compiled(X), program(X))


def test_a_class_that_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Tensor) -> Tensor:
        result: Tensor = nn.Identity()(x)
        return result

    api.reset()
    compiled = api.compile(program, backend="eager")
    with monkeypatch.context() as patch:
        patch.setattr(nn, "Identity", Other)
        torch.testing.assert_close(compiled(X), program(X))
    torch.testing.assert_close(compiled(X), program(X))
    assert nn.Identity is IDENTITY
