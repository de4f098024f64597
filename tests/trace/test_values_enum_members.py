"""Members of enums whose class makes them containers or callables, and what constants that are neither answer."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature


class Side(enum.Flag):
    LEFT = enum.auto()
    RIGHT = enum.auto()
    BOTH = LEFT | RIGHT


class Level(enum.Enum):
    LOW = 1
    HIGH = 2

    def __iter__(self):
        return iter((self.value, 5))

    def __len__(self):
        return self.value * 2

    def __getitem__(self, key):
        return key + self.value

    def __call__(self, number, times=1):
        return number * self.value * times

    def __contains__(self, number):
        return number == self.value


class Rows(enum.Enum):
    TWO = 2

    def __getitem__(self, key):
        if key >= self.value:
            raise IndexError(key)
        return key


def outcome(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        return type(error), str(error)


def parts_of_flags(x: torch.Tensor) -> Any:
    return x * len(Side.BOTH), list(Side.BOTH), [side.value for side in Side.LEFT], Side.LEFT in Side.BOTH


def members_as_containers(x: torch.Tensor) -> Any:
    high = Level.HIGH
    return [*high], len(high), high[3], high(x, times=3), 1 in high, 2 in high, [a for a, b in zip(high, Side.BOTH)]


def rows(x: torch.Tensor) -> Any:
    return x + 1, list(Rows.TWO), 1 in Rows.TWO


def refusals(x: torch.Tensor) -> Any:
    found = []
    for obj in (Side.BOTH, 3, None, 2.5, torch.float32, Level.LOW):
        found.append(outcome(lambda obj=obj: obj()))
        found.append(outcome(lambda obj=obj: len(obj)))
        found.append(outcome(lambda obj=obj: list(obj)))
        found.append(outcome(lambda obj=obj: obj["a"]))
    return x + 1, found


@pytest.mark.parametrize("function", [parts_of_flags, members_as_containers, refusals])
def test_in_one_graph(function: Callable[[torch.Tensor], Any]) -> None:
    x = torch.ones(2)
    compiled = armature.compile(function, backend="eager", fullgraph=True)
    assert repr(compiled(x)) == repr(function(x))


def test_a_sequence_by_its_items_is_as_in_eager_mode() -> None:
    x = torch.ones(2)
    assert repr(armature.compile(rows, backend="eager")(x)) == repr(rows(x))


class Held(enum.Enum):
    ITEMS = [1]
    NAMES = {"a": 1}
    PAIR = (1, [2])


def held_values_change(x):
    Held.ITEMS.value.append(3)
    Held.NAMES.value["b"] = 2
    Held.PAIR.value[1].append(5)
    same = Held.ITEMS.value is Held.ITEMS._value_, Held.PAIR.value is Held.PAIR.value
    return x + len(Held.ITEMS.value), same, Held.NAMES.value, Held.ITEMS.value


def test_what_a_member_holds_is_one_object():
    quick = armature.compile(held_values_change, backend="eager", fullgraph=True)
    for round in range(1, 4):
        result, same, names, items = quick(torch.ones(1))
        assert names is Held.NAMES.value and items is Held.ITEMS.value and same == (True, True)
        assert Held.ITEMS.value == [1, *[3] * round] and Held.PAIR.value == (1, [2, *[5] * round])
        assert result.item() == 2 + round and names == {"a": 1, "b": 2}
