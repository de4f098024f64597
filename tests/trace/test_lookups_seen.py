"""A program that sees each look at its objects sees as many as in eager mode: compiling looks past its code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature.pipeline.session import Outcome, session

SEEN: list[str] = []


class Watching:
    def __init__(self) -> None:
        object.__setattr__(self, "size", 2)
        object.__setattr__(self, "kept", torch.ones(3))

    def __getattribute__(self, name: str) -> Any:
        SEEN.append(name)
        return object.__getattribute__(self, name)


class Claiming:
    size = 2
    kept = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        SEEN.append("__class__")
        return int


def attribute(t: torch.Tensor, thing: Any) -> object:
    return t + thing.size


def passed_on(t: torch.Tensor, thing: Any) -> object:
    return t + 1, [thing], thing.kept


def asked(t: torch.Tensor, thing: Any) -> object:
    return t + 1, isinstance(thing, int), isinstance(thing, (list, type(thing)))


def past_a_break(t: torch.Tensor, thing: Any) -> object:
    print(end="")
    return t + thing.size, [thing]


@pytest.mark.parametrize("program", [attribute, passed_on, asked, past_a_break])
@pytest.mark.parametrize("kind", [Watching, Claiming])
def test_as_often_as_in_eager_mode(program: Callable[..., Any], kind: type) -> None:
    def looks(run: Callable[..., Any]) -> list[str]:
        thing = kind()
        SEEN.clear()
        run(torch.ones(3), thing)
        run(torch.ones(3), thing)
        return list(SEEN)

    assert looks(armature.compile(program, backend="eager")) == looks(program)
    assert all(record.outcome is not Outcome.FALLBACK for record in session().compilations)


@pytest.fixture(autouse=True)
def anew() -> None:
    armature.reset()
