"""Attributes got through `super()` and through a class, objects that say of which class they are, and `__del__`."""

from __future__ import annotations

import collections.abc
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature.testing.differential import difference

X = torch.ones(2)


class Named:
    def __init__(self, label: str) -> None:
        self.label = label

    def __get__(self, obj: object, owner: Any = None) -> Any:
        return self.label, obj is None, owner.__name__


class Base:
    named = Named("n")

    @classmethod
    def who(cls) -> str:
        return cls.__name__

    @functools.singledispatchmethod
    def by_type(self, value: object) -> Any:
        return "object"

    @by_type.register
    def _(self, value: int) -> Any:
        return "int"

    @functools.singledispatchmethod
    @classmethod
    def of_class(cls, value: object) -> Any:
        return "object", cls.__name__

    @of_class.register
    @classmethod
    def _(cls, value: str) -> Any:
        return "str", cls.__name__

    def pair(self, a: Any, b: Any) -> Any:
        return a, b

    with_two = functools.partialmethod(pair, 2)
    kept = functools.cached_property(lambda self: 3)


class Derived(Base):
    def who(self) -> str:  # type: ignore[override]
        return super().who()

    @classmethod
    def named_above(cls) -> Any:
        return super().named, super().who()

    def got_above(self) -> Any:
        return super().named, super().with_two(3), super().by_type(1), super().kept

    def dispatched_above(self) -> Any:
        return super().of_class("s"), super().of_class(1)


class Last(Derived):
    pass


def of_super(t, obj):
    return obj.who(), obj.named_above(), obj.got_above(), super(Derived, obj).who(), t + 1


def of_a_class(t, obj):
    return Base.by_type(obj, 1), Base.with_two(obj, 5), Base.named, type(Base.kept).__name__, t + 1


def of_class_methods(t, obj):
    return Base.of_class("s"), Base.of_class(1), obj.dispatched_above(), t + 1


@pytest.mark.parametrize("program, whole", [(of_super, True), (of_a_class, True), (of_class_methods, False)])
def test_attributes_of_classes_above(program: Callable[..., Any], whole: bool) -> None:
    quick = armature.compile(program, backend="eager", fullgraph=whole)
    for obj in (Derived(), Last(), Derived()):
        assert difference(program(X, obj), quick(X, obj)) == 0


class Proxy:
    def __init__(self, held: Any) -> None:
        object.__setattr__(self, "_held", held)

    @property
    def __class__(self) -> Any:
        return type(self._held)

    def __len__(self) -> int:
        return len(self._held)


class Dots(type):
    def __instancecheck__(cls, obj: object) -> bool:
        return obj is Ellipsis or type.__instancecheck__(cls, obj)


class Dotted(metaclass=Dots):
    pass


def asked(t, p):
    return isinstance(p, list), isinstance(p, (dict, tuple)), isinstance(p, (int, Proxy)), type(p).__name__, t + len(p)


def told(t, p):
    return p.__class__.__name__, isinstance(p, collections.abc.Mapping), t + len(p)


def matched(t, p):
    match p:
        case []:
            return "empty", t
        case list():
            return "list", t + 1
        case dict():
            return "dict", t + 2
    return "other", t


@pytest.mark.parametrize("program", [asked, told, matched])
def test_proxies_say_of_which_class_they_are(program: Callable[..., Any]) -> None:
    quick = armature.compile(program, backend="eager", fullgraph=True)
    for held in ([1, 2], {1: 2}, (1,), []):
        assert difference(program(X, Proxy(held)), quick(X, Proxy(held))) == 0


def cases(t, value):
    match value:
        case Dotted():
            return "dots", t + 1
        case collections.abc.Sequence():
            return "sequence", t
        case torch.nn.Parameter():
            return "parameter", t
        case torch.Tensor(shape=shape):
            return shape, t
        case int(n):
            return n, t
    return None, t


def test_class_patterns_ask_as_isinstance_does() -> None:
    quick = armature.compile(cases, backend="eager", fullgraph=True)
    for value in (..., 4, Dotted(), [1], torch.ones(1), torch.nn.Parameter(torch.ones(1)), None):
        assert difference(cases(X, value), quick(X, value)) == 0


def test_a_proxy_of_a_dict_is_not_read_as_a_dict() -> None:
    def fn(p: Any) -> Any:
        return p.__class__.__name__, len(p)

    quick = armature.compile(fn, backend="eager")
    assert quick(Proxy({1: 2})) == fn(Proxy({1: 2})) == ("dict", 1)


LOG: list[str] = []


class Finalised:
    def __init__(self, name: str) -> None:
        self.name = name

    def __del__(self) -> None:
        LOG.append(self.name)


def dropped(t):
    held = Finalised("first")
    LOG.append("made")
    held = None
    Finalised("second")
    LOG.append("end")
    return t + (held is None)


def dropped_after_a_break(t):
    held = Finalised("first")
    armature.graph_break()
    LOG.append("made")
    del held
    LOG.append("end")
    return t + 1


def dropped_below(t):
    return dropped(t) * 2


def made_by_a_class_of_the_frame(t):
    class Counted(list):  # type: ignore[type-arg]
        def __del__(self) -> None:
            LOG.append(f"list of {len(self)}")

    held: Any = Counted([1, 2])
    LOG.append("made")
    held = 0
    LOG.append("end")
    return t + held


@pytest.mark.parametrize(
    "program", [dropped, dropped_after_a_break, dropped_below, made_by_a_class_of_the_frame], ids=lambda p: p.__name__
)
def test_objects_end_where_eager_mode_ends_them(program: Callable[..., Any]) -> None:
    LOG.clear()
    want, told = program(X), [*LOG]
    quick = armature.compile(program, backend="eager")
    for _ in range(3):
        LOG.clear()
        assert difference(want, quick(X)) == 0
        assert told == LOG
