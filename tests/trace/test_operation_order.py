"""Which methods of a class operations ask, where it derives from a builtin type or leaves some to `object`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature

LOG: list[str] = []


class OwnEq(list):  # type: ignore[type-arg]
    def __eq__(self, other: object) -> Any:
        LOG.append("eq")
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]


class Index(str):
    def __index__(self) -> int:
        LOG.append("index")
        return 1


class Indices(list):  # type: ignore[type-arg]
    def __index__(self) -> int:
        return 2


class Rounds(str):
    def __round__(self, digits: Any = None) -> str:
        LOG.append("round")
        return "rounded"


class Number(int):
    def __round__(self, digits: Any = None) -> int:
        LOG.append("round")
        return 7

    def __radd__(self, other: object) -> str:
        LOG.append("radd")
        return "radd"


class Plain:
    def __eq__(self, other: object) -> Any:
        LOG.append("plain eq")
        return True

    __hash__ = None  # type: ignore[assignment]


def unequal(x):
    return x + 1, OwnEq([1]) != OwnEq([2]), OwnEq() != 3, Plain() != 3, Plain() != OwnEq()


def by_index(x):
    return x + [1, 2][Index("a")], [3] * Index("b"), (4,) * Index("b"), [5] * Indices(), Indices([6]) * 2


def rounded(x):
    return x + 1, round(Rounds("a")), round(Number(3)), round(Number(3), 1)


def added_to_a_tensor(x):
    return x + Number(2), x * Number(3)


def reduced(x):
    try:
        return functools.reduce(lambda a, b: a, 5)  # type: ignore[arg-type]
    except TypeError as error:
        return x, str(error)


@pytest.mark.parametrize("program", [unequal, by_index, rounded, added_to_a_tensor, reduced], ids=lambda p: p.__name__)
def test_like_eager(program: Callable[[torch.Tensor], Any]) -> None:
    def answers(run: Callable[[torch.Tensor], Any]) -> tuple[str, list[str]]:
        LOG.clear()
        return str(run(torch.ones(2))), [*LOG]

    assert answers(armature.compile(program, backend="eager")) == answers(program)
