"""Operators between tensors and objects with `__getattr__`: which torch asks for `__torch_function__`, the language not."""

# ruff: noqa: SIM300 - it is what is tested

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import armature


class Scales(nn.Module):
    def __mul__(self, other: Tensor) -> Tensor:
        return other * 2

    def __rmul__(self, other: Tensor) -> Tensor:
        return other * 3

    def __lt__(self, other: Tensor) -> Tensor:
        return other + 1

    def __eq__(self, other: object) -> Any:
        return other + 5  # type: ignore[operator]

    __hash__ = nn.Module.__hash__


class Forwards:
    """Asks another object for the attributes that it lacks."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def __add__(self, other: Any) -> Any:
        return other + 4

    __radd__ = __add__


class LooksUp(Forwards):
    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


class Logs(Forwards):
    def __getattr__(self, name: str) -> Any:
        object.__getattribute__(self, "log").append(name)
        raise AttributeError(name)


class Overrides(Forwards):
    def __getattr__(self, name: str) -> Any:
        if name == "__torch_function__":
            return lambda *args, **kwargs: torch.full((3,), 17.0)
        raise AttributeError(name)


def logged(x: Tensor) -> tuple[Tensor, list[str]]:
    made = Logs()
    return x + made, made.log


SCALES, FORWARDS, LOOKS_UP, OVERRIDES = Scales(), Forwards(), LooksUp(), Overrides()
WHOLE: dict[str, Callable[[Tensor], Any]] = {
    "module first": lambda x: SCALES * x,
    "tensor first": lambda x: x * SCALES,
    "less": lambda x: SCALES < x,
    "greater": lambda x: x > SCALES,
    "equal": lambda x: (SCALES == x, x == SCALES),
    "object first": lambda x: FORWARDS + x,
    "object last": lambda x: x + FORWARDS,
    "with __getattribute__": lambda x: (LOOKS_UP + x, x + LOOKS_UP),
}
BROKEN: dict[str, Callable[[Tensor], Any]] = {
    "gives __torch_function__": lambda x: x + OVERRIDES,
    "gives it, but is not asked": lambda x: OVERRIDES + x,
    "logs": logged,
}


@pytest.mark.parametrize("name", WHOLE)
def test_in_the_graph(name: str) -> None:
    x = torch.ones(3)
    torch.testing.assert_close(armature.compile(WHOLE[name], backend="eager", fullgraph=True)(x), WHOLE[name](x))


@pytest.mark.parametrize("name", BROKEN)
def test_as_in_eager(name: str) -> None:
    x = torch.ones(3)
    found, expected = armature.compile(BROKEN[name], backend="eager")(x), BROKEN[name](x)
    assert str(found) == str(expected)
