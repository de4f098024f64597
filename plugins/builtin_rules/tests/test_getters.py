"""operator's itemgetter, attrgetter and methodcaller: made, asked and called like those that eager mode makes."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature

HELD = operator.methodcaller("pop", "a")


def wrapped(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    return wrapper


def error_of(fn: Callable[[], object]) -> tuple[type, str] | None:
    try:
        fn()
    except (AttributeError, TypeError) as error:
        return type(error), str(error)
    return None


PROGRAMS: tuple[Callable[[torch.Tensor], Any], ...] = (
    lambda x: (x + 1, wrapped(operator.methodcaller("__neg__")).__name__, wrapped(operator.itemgetter(0))([4, 5])),
    lambda x: (x + 1, type(operator.itemgetter(0)) is operator.itemgetter, isinstance(HELD, operator.methodcaller)),
    lambda x: (x + 1, hasattr(operator.attrgetter("real"), "__name__"), callable(operator.attrgetter("real"))),
    lambda x: (x + 1, operator.itemgetter(1).__module__, HELD.__class__, HELD.__call__({"a": 3})),
    lambda x: (operator.itemgetter(0, 2)([x, 1, 2]), operator.attrgetter("shape", "dtype.itemsize")(x)),
    lambda x: (x + 1, operator.methodcaller("split", sep=",")("a,b"), HELD({"a": 1})),
    lambda x: (
        x + 1,
        *(error_of(fn) for fn in (lambda: operator.itemgetter(0)(), lambda: HELD(1, 2), lambda: HELD(b=1))),
    ),
    lambda x: (x + 1, error_of(operator.itemgetter), error_of(operator.attrgetter)),
    lambda x: (x + 1, *(error_of(fn) for fn in (lambda: HELD.name, lambda: operator.attrgetter(1)))),
    lambda x: (x + 1, error_of(operator.methodcaller), error_of(lambda: operator.methodcaller(3))),
)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_like_eager(number: int) -> None:
    program, x = PROGRAMS[number], torch.ones(2)
    armature.reset()
    assert str(armature.compile(program, backend="eager", fullgraph=True)(x)) == str(program(x))


@pytest.mark.parametrize(
    "make",
    [
        lambda name: operator.itemgetter(name, "b"),
        operator.attrgetter,
        lambda name: operator.methodcaller(name, 1, b=2),
    ],
)
def test_what_leaves_the_frame(make: Callable[[str], Any]) -> None:
    held = types.SimpleNamespace()

    def program(x: torch.Tensor, name: str) -> tuple[torch.Tensor, Any]:
        held.getter = make(name)
        return x + 1, held.getter

    found = armature.compile(program, backend="eager", fullgraph=True)(torch.ones(2), "a")[1]
    assert type(found) is type(make("a")) and repr(found) == repr(make("a"))
    assert held.getter is found


def test_one_that_the_program_holds_is_guarded() -> None:
    held = types.SimpleNamespace(getter=operator.itemgetter(0))
    run = armature.compile(lambda x: (held.getter([x, x + 1]), held.getter), backend="eager", fullgraph=True)
    for position in (0, 1):
        held.getter = operator.itemgetter(position)
        found = run(torch.zeros(1))
        assert found[0].item() == position and found[1] is held.getter
