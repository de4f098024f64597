"""Methods in C that live across a graph break: each call of the program looks them up anew."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session

LOCK, RECURSIVE = threading.Lock(), threading.RLock()


@armature.disable
def outside(value: Any = None) -> Any:
    """A call that breaks the graph."""
    return value


def of_tensor(x: Tensor) -> Tensor:
    return x.clamp(max=outside(0.5)) + x.add(outside(2))


def of_list(x: Tensor) -> Tensor:
    items = [x]
    items.append(outside(2))
    return items[0] * items[1]


def of_text(x: Tensor) -> Tensor:
    return x * len("ab".replace("a", outside("xyz")))


def of_dict(x: Tensor) -> Tensor:
    get = {"k": 3}.get
    outside()
    return x * get("k")


def under_locks(x: Tensor) -> Tensor:
    with LOCK:
        y = x * 2
    with RECURSIVE:
        y = y + 1
    return y * 3


@pytest.mark.parametrize("program", [of_tensor, of_list, of_text, of_dict, under_locks])
def test_the_next_call_compiles_nothing(program: Callable[[Tensor], Tensor]) -> None:
    armature.reset()
    quick, x = armature.compile(program, backend="eager"), torch.linspace(-1, 1, 4)
    quick(x)
    compilations = len(session().compilations)
    for shift in range(3):
        torch.testing.assert_close(quick(x + shift), program(x + shift), rtol=0, atol=0)
    assert len(session().compilations) == compilations


def called(x: Tensor, method: Callable[..., Any]) -> Any:
    return x * 2, method("k")


def test_another_method_or_another_object_is_seen() -> None:
    quick, x = armature.compile(called, backend="eager"), torch.ones(2)
    held = {"k": 3}, {"k": 4}
    methods: list[Callable[..., Any]] = [held[0].get, held[1].get, held[0].pop, held[0].get, "kk".count, "kk".find]
    assert [quick(x, method)[1] for method in methods] == [3, 4, 3, None, 2, 0]


def test_the_method_of_a_base_is_another_one() -> None:
    quick, x = armature.compile(called, backend="eager"), torch.ones(2)
    ordered: OrderedDict[str, int] = OrderedDict(k=1)
    assert quick(x, ordered.pop)[1] == 1
    ordered["k"] = 2
    assert quick(x, dict.pop.__get__(ordered))[1] == 2
