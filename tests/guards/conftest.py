"""Each test starts without compiled code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import armature
from armature.pipeline.session import Outcome, session
from armature.testing.differential import difference
from tests.support.tracing import comparable


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    armature.reset()
    yield
    armature.reset()


def compilations() -> int:
    """How many frames were compiled."""
    return sum(record.outcome is Outcome.COMPILED for record in session().compilations)


Make = Callable[[], tuple[Any, ...]]


class Watched:
    """A compiled function next to the plain one: each call is compared with eager, and says whether it compiled."""

    def __init__(self, fn: Callable[..., Any], backend: str = "eager") -> None:
        self.fn = fn
        self.compiled = armature.compile(fn, backend=backend)

    def compiles(self, make: Make) -> bool:
        """Call with the arguments that `make` makes, eager with others made alike; whether there was a compilation."""
        before = compilations()
        mine, theirs = make(), make()
        result = _outcome(self.compiled, mine)
        found = compilations() - before
        assert difference(_outcome(self.fn, theirs), result) <= 1e-6
        assert difference(comparable(theirs), comparable(mine)) <= 1e-6
        return found > 0


def _outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    torch.manual_seed(0)
    try:
        return fn(*args)
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.fixture
def watch() -> type[Watched]:
    return Watched
