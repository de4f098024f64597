"""Classes with parameters, `dict[str, int]`, are called like the classes themselves, and what they make may know of it."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from tests.support.tracing import check, trace


class Items(list):  # type: ignore[type-arg]
    pass


class Slotted:
    __slots__ = ("v",)
    __class_getitem__ = classmethod(types.GenericAlias)

    def __init__(self, v: Any) -> None:
        self.v = v


class Closed:
    __class_getitem__ = classmethod(types.GenericAlias)

    def __init__(self, error: type[Exception]) -> None:
        self.__dict__["error"] = error

    def __setattr__(self, name: str, value: Any) -> None:
        raise self.error(name)


TABLE = dict[str, int]


def containers(x):
    made = dict[str, Any](a=x)
    made["b"] = x + 1
    return made, list[int](range(3)), tuple[int, ...]([1, 2]), set[int]([3]), collections.deque[int]([1], 2)


def from_global(x):
    return TABLE(a=1), x + 1


def default(x):
    found = collections.defaultdict[str, int](int)
    found["a"] += 2
    return x + found["a"]


def told(x):
    items = Items[int]([1, 2])
    return x + items[0], items.__orig_class__, functools.partial[int](max, 3)(4)


def slotted(x):
    return Slotted[int](x + 1).v


def refuses(x):
    Closed[int](AttributeError)
    Closed[int](TypeError)
    try:
        Closed[int](ValueError)
    except ValueError as error:
        return x + 1, str(error)


def wrong(x):
    return x, list[int](1, 2)


X = torch.linspace(-1.0, 1.0, 6)


@pytest.mark.parametrize("fn", [containers, from_global, default, told, slotted, refuses])
def test_called_like_the_class(fn: Callable[..., Any]) -> None:
    check(fn, X)


def test_errors_are_those_of_the_class() -> None:
    with pytest.raises(TypeError, match="list expected at most 1 argument"):
        armature.compile(wrong, backend="eager")(X)


def test_which_alias_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trace(from_global, X).holds(from_global, X)
    compiled = armature.compile(from_global, backend="eager", fullgraph=True)
    assert compiled(X)[0] == {"a": 1}
    monkeypatch.setitem(globals(), "TABLE", collections.OrderedDict[str, int])
    assert type(compiled(X)[0]) is collections.OrderedDict
