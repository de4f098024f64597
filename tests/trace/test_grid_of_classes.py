"""Objects of classes with odd or partial special methods, by many operations: answers and errors as in eager."""

# ruff: noqa: F507, UP031 - it is what is tested

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature

X = torch.ones(2)
Pair = collections.namedtuple("Pair", "a b")


class Plain:
    """Nothing of its own."""


class Reflected:
    def __radd__(self, other):
        return "radd"

    def __rmul__(self, other):
        return "rmul"

    def __rmod__(self, other):
        return "rmod"


class Base:
    def __add__(self, other):
        return "add of the base"

    def __radd__(self, other):
        return "radd of the base"

    def __eq__(self, other):
        return "eq of the base"

    __hash__ = None


class Derived(Base):
    """Reflects as its base does."""


class Overloaded(Base):
    def __radd__(self, other):
        return "radd of its own"


class Parts:
    def __floordiv__(self, other):
        return 1

    def __mod__(self, other):
        return 2


class Unsure:
    def __pow__(self, other, modulus=None):
        return NotImplemented


class Item:
    def __getitem__(self, key):
        return key


class EntersOnly:
    def __enter__(self):
        return 1


def multiply_in_place(o):
    items = [1]
    items *= o
    return items


def add_in_place(o):
    items = [1]
    items += o
    return items


def enter(o):
    with o as entered:
        return entered


def raise_from(o):
    raise ValueError(1) from o


def catch(o):
    try:
        raise KeyError(1)
    except o:
        return "caught"


def answer(f: Callable[[Any], Any], make: Callable[[], Any], compiled: bool) -> Any:
    def program(x, o):
        try:
            return x + 1, f(o)
        except Exception as error:
            return x + 1, (type(error), str(error), type(error.__cause__))

    if compiled:
        armature.reset()
        program = armature.compile(program, backend="eager")
    return program(X, make())[1]


def differs_not(f: Callable[[Any], Any], make: Callable[[], Any]) -> None:
    assert answer(f, make, compiled=True) == answer(f, make, compiled=False)


OPERATORS = {
    "same class reflects nothing": (lambda o: o + o, Reflected),
    "reflected by another": (lambda o: [1] + o, Reflected),
    "list in place": (add_in_place, Reflected),
    "list repeated in place": (multiply_in_place, Reflected),
    "text takes all": (lambda o: "a" % o, Reflected),
    "text wants a mapping": (lambda o: "%(a)s" % o, Reflected),
    "text leaves items": (lambda o: "a" % o, Item),
    "text takes items": (lambda o: "%(a)s" % o, Item),
    "text of a named tuple": (lambda o: "%s %s" % o, lambda: Pair(1, 2)),
    "derived": (lambda o: Base() + o, Derived),
    "overloaded": (lambda o: Base() + o, Overloaded),
    "derived on the left": (lambda o: o + Base(), Overloaded),
    "derived compares": (lambda o: Base() == o, Derived),
    "divmod by other methods": (lambda o: divmod(o, 2), Parts),
    "divmod": (lambda o: divmod(2, o), Plain),
    "pow": (lambda o: pow(o, 1, 2), Unsure),
    "pow without": (lambda o: pow(o, 1, 2), Plain),
    "ne by eq": (lambda o: object.__ne__(o, 1), Base),
    "ne of itself": (lambda o: object.__ne__(o, o), Plain),
    "ne of another": (lambda o: object.__ne__(o, 1), Plain),
}
STATEMENTS = {
    "enter": (enter, Plain),
    "enter without exit": (enter, EntersOnly),
    "enter a number": (enter, lambda: 3),
    "cause": (raise_from, Plain),
    "cause None": (raise_from, lambda: None),
    "cause a class": (raise_from, lambda: KeyError),
    "cause another class": (raise_from, lambda: int),
    "catch": (catch, Plain),
    "catch another class": (catch, lambda: int),
    "catch some": (catch, lambda: (ValueError, LookupError)),
    "catch others too": (catch, lambda: (KeyError, 3)),
    "catch nested": (catch, lambda: ((KeyError,), ValueError)),
    "catch a list": (catch, lambda: [KeyError]),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    differs_not(*OPERATORS[name])


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements(name: str) -> None:
    differs_not(*STATEMENTS[name])


def test_a_reflected_method_that_a_class_gets_later() -> None:
    class Late(Base):
        """Gets one below."""

    def program(x, o):
        return x + 1, Base() + o

    compiled = armature.compile(program, backend="eager")
    assert compiled(X, Late())[1] == "add of the base"
    Late.__radd__ = lambda self, other: "late"
    assert compiled(X, Late())[1] == "late"
