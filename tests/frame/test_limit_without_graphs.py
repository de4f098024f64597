"""The recompile limit of functions that only move tensors between containers."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

import armature
from armature.errors import ArmatureWarning
from armature.pipeline.session import session


class Key:
    """What a cache knows an interval by."""


class LastOnes(dict[Key, Tensor]):
    """A cache as torchsde has it: the oldest entry goes when there is no room."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.order: list[Key] = []

    def __setitem__(self, key: Key, value: Tensor) -> None:
        if key in self:
            self.order.remove(key)
        elif len(self) >= self.room:
            del self[self.order.pop(0)]
        super().__setitem__(key, value)
        self.order.append(key)


def pick(x: Tensor, name: str) -> Tensor:
    return x if name else twice(x)


def twice(x: Tensor) -> Tensor:
    return x * 2


def warnings_of(names: list[str], x: Tensor) -> list[str]:
    """What is warned of when `pick` is called with these names, one after another."""
    armature.reset()
    compiled = armature.compile(pick, backend="eager")
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for name in names:
            assert torch.equal(compiled(x, name), pick(x, name))
    return [str(each.message) for each in shown if each.category is ArmatureWarning]


def test_a_cache_of_tensors_reaches_the_limit_without_a_warning() -> None:
    armature.reset()
    cache, keys = LastOnes(3), [Key() for _ in range(20)]

    def step(key: Key, value: Tensor) -> None:
        cache[key] = value

    compiled = armature.compile(step, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ArmatureWarning)
        for number, key in enumerate(keys):
            compiled(key, torch.full((2,), float(number)))
    assert list(cache) == cache.order == keys[-3:]
    assert [float(value[0]) for value in cache.values()] == [17.0, 18.0, 19.0]
    assert not session().limits


def test_functions_called_beyond_the_limit_are_compiled() -> None:
    x = torch.ones(3)
    assert warnings_of([*"abcdefghijkl", ""], x) == []
    assert [each.function for each in session().compilations if each.module is not None] == ["twice"]
    assert any("computed nothing with tensors" in each.reason for each in session().skips)


def test_one_graph_among_the_compilations_is_a_reason_to_warn() -> None:
    assert len(warnings_of(["", *"abcdefghijkl"], torch.ones(3))) == 1
