"""Special methods that are no functions: a callable object, a partial, a static or class method, a descriptor, None."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import armature

X = torch.ones(2)


class Seven:
    def __call__(self, *args: Any) -> int:
        return 7


class Described:
    def __get__(self, obj: Any, cls: Any) -> Any:
        return lambda *args: 11


METHODS = {
    "object": Seven(),
    "partial": functools.partial(lambda number, *args: number + len(args), 3),
    "static": staticmethod(lambda *args: 10 + len(args)),
    "class": classmethod(lambda cls, *args: 20 + len(args)),
    "descriptor": Described(),
    "builtin": hash,
    "none": None,
}


def holding(name: str, method: Any, base: type = object) -> Any:
    """An object whose class has the method."""
    return type("Holding", (base,), {name: method})()


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "__getattr__": lambda held: held.missing,
    "__eq__": lambda held: held == 1,
    "__ne__": lambda held: held != 1,
    "__lt__": lambda held: held < 1,
    "__add__": lambda held: held + 1,
    "__getitem__": lambda held: held[1],
    "__call__": lambda held: held(1),
}


def outcome(fn: Callable[[Any], Any]) -> Any:
    try:
        return fn(X).tolist()
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_they_are_called_as_python_does(name: str, kind: str) -> None:
    held, operation = holding(name, METHODS[kind]), OPERATIONS[name]

    def plain(x: Any) -> Any:
        found = operation(held)
        return x + (found if type(found) is int else -50)

    def caught(x: Any) -> Any:
        try:
            return plain(x)
        except (AttributeError, TypeError):
            return x - 100

    for fn in (plain, caught):
        assert outcome(armature.compile(fn, backend="eager")) == outcome(fn)


@pytest.mark.parametrize("kind", METHODS)
def test_attributes_that_a_module_lacks(kind: str) -> None:
    held = holding("__getattr__", METHODS[kind], nn.Module)

    def fn(x: Any) -> Any:
        try:
            return x + held.missing
        except (AttributeError, TypeError):
            return x - 100

    assert outcome(armature.compile(fn, backend="eager")) == outcome(fn)


def test_equal_in_containers_and_unequal_by_it() -> None:
    held = holding("__eq__", staticmethod(lambda other: other == 1))

    def fn(x: Any) -> Any:
        return x + ([held] == [1]) + 2 * (held in [2, 1]) + 4 * (held != 1) + 8 * [3, 1].index(held)

    assert outcome(armature.compile(fn, backend="eager")) == outcome(fn)
