"""Context variables: read, set and set back in one graph, each call in its own context."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
import torch
from torch import Tensor

import armature

X = torch.linspace(-1, 1, 4)
WIDTH: ContextVar[Any] = ContextVar("WIDTH", default=2)
BARE: ContextVar[Any] = ContextVar("BARE")


def asked(x: Tensor) -> Any:
    return x * WIDTH.get(), BARE.get(7), WIDTH.get(5), WIDTH.name, {WIDTH: 1}[WIDTH]


def missing(x: Tensor) -> Any:
    try:
        return x * BARE.get()
    except LookupError as error:
        return x, error.args == (BARE,)


def set_and_read(x: Tensor) -> Any:
    WIDTH.set(WIDTH.get() + 1)
    BARE.set(x * 2)
    return BARE.get() * WIDTH.get(), BARE.get(3)


def set_back(x: Tensor) -> Any:
    outer = WIDTH.set(5)
    inner = WIDTH.set(6)
    y = x * WIDTH.get()
    WIDTH.reset(inner)
    y = y + WIDTH.get()
    WIDTH.reset(outer)
    return y, WIDTH.get(), WIDTH.get(9)


def set_back_to_the_first(x: Tensor) -> Any:
    token = BARE.set(x)
    BARE.set(1)
    BARE.reset(token)
    return x + 1, BARE.get(None)


IN_ONE_GRAPH = [asked, missing, set_and_read, set_back, set_back_to_the_first]


def held_across_a_break(x: Tensor) -> Any:
    token = WIDTH.set(5)
    x = x * WIDTH.get()
    print(end="")
    x = x * WIDTH.get()
    WIDTH.reset(token)
    return x * WIDTH.get()


def set_back_twice(x: Tensor) -> Any:
    token = WIDTH.set(5)
    WIDTH.reset(token)
    try:
        WIDTH.reset(token)
    except RuntimeError as error:
        return x + 1, str(error)[:30]


def returned(x: Tensor) -> Any:
    token = WIDTH.set(5)
    return x * 2, token.var is WIDTH, token.old_value


def run(fn: Callable[[Tensor], Any], times: int, first: tuple[tuple[ContextVar[Any], Any], ...] = ()) -> list[Any]:
    """The results of some calls, and what the variables hold after each, in a context of their own."""

    def calls() -> list[Any]:
        for variable, value in first:
            variable.set(value)
        return [(fn(X), WIDTH.get(), WIDTH.get("none"), BARE.get("none")) for _ in range(times)]

    return contextvars.copy_context().run(calls)


FIRST: tuple[tuple[tuple[ContextVar[Any], Any], ...], ...] = ((), ((WIDTH, 3),), ((WIDTH, 4), (BARE, torch.ones(4))))


@pytest.mark.parametrize("program", IN_ONE_GRAPH)
def test_one_graph_does_as_eager_mode(program: Callable[[Tensor], Any]) -> None:
    armature.reset()
    compiled = armature.compile(program, backend="eager", fullgraph=True)
    for first in (*FIRST, *FIRST):
        assert str(run(compiled, 3, first)) == str(run(program, 3, first))


@pytest.mark.parametrize("program", [held_across_a_break, set_back_twice, returned])
def test_what_is_left_to_eager_mode(program: Callable[[Tensor], Any]) -> None:
    armature.reset()
    compiled = armature.compile(program, backend="eager")
    for first in FIRST:
        assert str(run(compiled, 3, first)) == str(run(program, 3, first))


def test_each_thread_has_its_own() -> None:
    armature.reset()
    compiled, found = armature.compile(asked, backend="eager"), []
    assert torch.equal(compiled(X)[0], X * 2)

    def other() -> None:
        WIDTH.set(8)
        found.append(compiled(X)[0])

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert torch.equal(found[0], X * 8)
    assert torch.equal(compiled(X)[0], X * 2)
