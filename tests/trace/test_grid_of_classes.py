"""Objects of classes with odd or partial special methods, by many operations: answers and errors as in eager."""

# ruff: noqa: C408, F507, UP018, UP031 - it is what is tested

from __future__ import annotations

import collections
import dataclasses
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


class Without:
    """Says by None that it does without."""

    __bool__ = __contains__ = __iter__ = __len__ = __getitem__ = __neg__ = __call__ = None


class EmptyAt:
    __iter__ = None

    def __getitem__(self, key):
        raise IndexError


class NoContainer:
    __contains__ = None

    def __iter__(self):
        return iter([1])


class Meta(type):
    def __bool__(cls):
        return False

    def __getattr__(cls, name):
        return ("of the metaclass", name)

    def __neg__(cls):
        return "negated"


class OfMeta(metaclass=Meta):
    """Its class answers."""


class LongMeta(type):
    def __len__(cls):
        return 0


class OfLongMeta(metaclass=LongMeta):
    """Its class has a length."""


class Returns:
    def __init__(self, given=5):
        self.given = given
        return given


class Members(tuple):
    """Compares as a tuple does."""


class OneSlot:
    __slots__ = ("a",)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: int = 1


def change_frozen(o):
    o.b = 1


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


REFUSED = {
    "bool": (bool, Without),
    "len": (len, Without),
    "in": (lambda o: 1 in o, Without),
    "in no container": (lambda o: 1 in o, NoContainer),
    "in what is not iterable": (lambda o: 1 in o, Plain),
    "iter": (list, Without),
    "iter by items": (list, EmptyAt),
    "max by items": (max, EmptyAt),
    "subscript": (lambda o: o[0], Without),
    "negate": (lambda o: -o, Without),
    "iterates all the same": (list, NoContainer),
}
METACLASSES = {
    "bool": (bool, lambda: OfMeta),
    "branch": (lambda o: 1 if o else 2, lambda: OfMeta),
    "bool by length": (bool, lambda: OfLongMeta),
    "plain": (bool, lambda: Plain),
    "attribute": (lambda o: o.missing, lambda: OfMeta),
    "hasattr": (lambda o: hasattr(o, "missing"), lambda: OfMeta),
    "negate": (lambda o: -o, lambda: OfMeta),
    "negate plain": (lambda o: -o, lambda: Plain),
    "invert": (lambda o: ~o, lambda: OfMeta),
    "init returns": (lambda o: o(), lambda: Returns),
    "init returns None": (lambda o: o(None).given, lambda: Returns),
    "frozen with slots": (change_frozen, Frozen),
    "members": (lambda o: (o > o, o >= o, o == o, o < o), lambda: Members([1, 2])),
}
ARGUMENTS = {
    "getattr by number": lambda o: getattr(o, 2),
    "getattr by number, default": lambda o: getattr(o, 2, 3),
    "getattr of four": lambda o: getattr(o, "a", 3, 4),
    "getattr default": lambda o: getattr(o, "nope", 3),
    "hasattr by number": lambda o: hasattr(o, 2),
    "setattr by number": lambda o: setattr(o, 2, 3),
    "delattr by number": lambda o: delattr(o, 2),
    "dict of two": lambda o: dict([], [], a=1),
    "dict self": lambda o: dict(self=1, tracer=2, other=3, kind=4),
    "dict": lambda o: dict([("a", 1)], self=2),
    "update self": lambda o: (d := {}, d.update(self=1, tracer=3))[0],
    "pow of four": lambda o: pow(1, 2, 3, 4),
    "pow by keywords": lambda o: pow(base=2, exp=5, mod=3),
    "pow by None": lambda o: pow(2, 5, None),
    "repr of nothing": lambda o: repr(),
    "repr of two": lambda o: repr(1, 2),
    "str": lambda o: (str(), str(1), str(b"a", "ascii")),
    "slice of nothing": lambda o: slice(),
    "slice of four": lambda o: slice(1, 2, 3, 4),
    "slices": lambda o: (slice(1), slice(1, 2), slice(1, 2, 3), slice(1, None)),
    "next of three": lambda o: next(iter([1]), 2, 3),
    "next default": lambda o: next(iter([]), None),
    "format by number": lambda o: format(1, 2),
    "vars of a number": lambda o: vars(1),
    "vars of slots": lambda o: vars(OneSlot()),
    "vars": lambda o: vars(o),
}


@pytest.mark.parametrize("name", REFUSED)
def test_methods_that_are_none(name: str) -> None:
    differs_not(*REFUSED[name])


@pytest.mark.parametrize("name", METACLASSES)
def test_classes(name: str) -> None:
    differs_not(*METACLASSES[name])


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_of_builtin_functions(name: str) -> None:
    differs_not(ARGUMENTS[name], Plain)


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
