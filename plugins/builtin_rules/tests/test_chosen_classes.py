"""Methods in C whose result may have the class of the object: compiled, the result has the class that eager mode gives."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

import armature
from armature.plugins import manager


class Ordered(OrderedDict[str, int]):
    pass


class Default(defaultdict[str, int]):
    pass


class Text(str):
    pass


class Plain(dict[str, int]):
    pass


CALLS: dict[str, Callable[[], Any]] = {
    "a copy of an OrderedDict": lambda: Ordered(a=1).copy(),
    "a union of an OrderedDict": lambda: Ordered(a=1) | {"b": 2},
    "a copy of a defaultdict": lambda: Default(int, a=1).copy(),
    "a text without fields": lambda: Text("a").format(1),
    "a partition": lambda: Text("a").partition("b")[0],
    "a copy of a dict": lambda: Plain(a=1).copy(),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_result_has_the_class_of_eager_mode(name: str) -> None:
    expected, found = CALLS[name](), armature.compile(CALLS[name])()
    assert type(found) is type(expected) and found == expected


def test_rows_are_of_the_kind_and_its_method() -> None:
    functions = manager().tables().functions
    assert functions.chooses_class(OrderedDict, "copy") and functions.chooses_class(str, "format")
    assert not functions.chooses_class(dict, "copy") and not functions.chooses_class(str, "upper")
