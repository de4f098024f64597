"""`left | right` of dicts: which key is kept, and of which type the result is."""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
import torch

import armature


class One(enum.IntEnum):
    ONE = 1


KINDS: list[Callable[[], Any]] = [
    lambda: {1: 0, "a": 2},
    lambda: defaultdict(list, {1: 3}),
    lambda: OrderedDict({One.ONE: 4, "b": 1}),
    lambda: MappingProxyType({True: 2}),
    lambda: Counter({1: 1}),
]


def merged(x: torch.Tensor, left: Any, right: Any) -> Any:
    return left | right, x + 1


def told(program: Callable[..., Any], left: Any, right: Any) -> Any:
    try:
        made = program(torch.ones(1), left, right)[0]
    except TypeError as error:
        return str(error)
    return type(made), [(type(key), key, value) for key, value in made.items()], getattr(made, "default_factory", None)


@pytest.mark.parametrize("left", range(len(KINDS)))
@pytest.mark.parametrize("right", range(len(KINDS)))
def test_merged_dicts(left: int, right: int) -> None:
    quick = armature.compile(merged, backend="eager")
    assert told(quick, KINDS[left](), KINDS[right]()) == told(merged, KINDS[left](), KINDS[right]())
