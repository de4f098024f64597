"""Keys that the program makes anew for each call: an equal one finds the same entry, whatever object it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature

MADE: dict[str, Callable[[], Any]] = {
    "tuple": lambda: (int("1000"), (int("2000"), "a")),
    "frozenset": lambda: frozenset([int("1"), int("2")]),
    "size": lambda: torch.ones(1, 2).shape,
    "range": lambda: range(int("3")),
    "range in a tuple": lambda: (range(int("2")), int("1")),
    "class in a tuple": lambda: (Tensor, int("1")),
    "int": lambda: int("10000"),
    "float": lambda: float("3.5"),
}
HELD = {make(): number for number, make in enumerate(MADE.values(), 1)}


def from_global(key: Any, x: Tensor, table: dict[Any, int]) -> Tensor:
    return x + HELD[key]


def from_argument(key: Any, x: Tensor, table: dict[Any, int]) -> Tensor:
    return x + table[key]


def from_pair(key: Any, x: Tensor, table: dict[Any, int]) -> Tensor:
    inner, _ = (key, x)
    return x + table.get(inner, 0)


@pytest.mark.parametrize("fn", [from_global, from_argument, from_pair])
@pytest.mark.parametrize("name", MADE)
def test_an_equal_key_finds_the_entry(name: str, fn: Callable[..., Tensor]) -> None:
    compiled = armature.compile(fn, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for _ in range(3):
        key = MADE[name]()
        assert torch.equal(compiled(key, x, dict(HELD)), fn(key, x, dict(HELD)))
    assert armature.explain(fn)(MADE[name](), x, dict(HELD)).graph_count == 1


@pytest.mark.parametrize("name", ["tuple", "frozenset"])
def test_another_key_finds_another_entry(name: str) -> None:
    compiled = armature.compile(from_argument, backend="eager", fullgraph=True)
    key = MADE[name]()
    other = (1, 2) if name == "tuple" else frozenset([4])
    table = {key: 1, other: 5}
    assert [compiled(k, torch.zeros(1), table).item() for k in (key, other, MADE[name]())] == [1, 5, 1]


def test_keys_of_pairs_over_breaks() -> None:
    table = {((i, i), (i, 0)): i for i in range(4)}
    numbers = {(i, i): i for i in range(4)}

    def program(x: Tensor) -> Tensor:
        for pair in table:
            first, second = pair
            armature.graph_break()
            x = x + numbers[first] + second[0]
        for key, _ in numbers.items():
            armature.graph_break()
            x = x + numbers[key]
        return x

    assert torch.equal(armature.compile(program, backend="eager")(torch.ones(2)), program(torch.ones(2)))
