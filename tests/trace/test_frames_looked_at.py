"""Functions of the program that look at the frames above them see those of eager mode."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature


def by_both() -> object:
    return sys._getframe(1).f_code.co_name, inspect.currentframe().f_back.f_code.co_name  # type: ignore[union-attr]


def by_variables() -> object:
    above = sys._getframe(1)
    return above.f_locals.get("doubled"), above.f_lineno - above.f_code.co_firstlineno


def by_traceback() -> object:
    return [line.name for line in traceback.extract_stack()[-2:]]


@pytest.mark.parametrize("look", [by_both, by_variables, by_traceback])
def test_the_caller_is_seen(look: Callable[[], object]) -> None:
    def caller(x: torch.Tensor) -> tuple[Any, ...]:
        doubled = x.sum().item() * 2
        first, second = look(), look()
        return first, second, x + doubled

    def plain(x: torch.Tensor) -> list[str]:
        return list(map(str, caller(x)))

    run = armature.compile(caller, backend="eager")
    assert list(map(str, run(torch.ones(2)))) == plain(torch.ones(2))
    assert list(map(str, run(torch.ones(2)))) == plain(torch.ones(2))


def test_what_is_called_from_there_is_compiled() -> None:
    graphs: list[object] = []

    def backend(graph: Any, inputs: object) -> Any:
        graphs.append(type(graph).__name__)
        return graph

    def work(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def looking(x: torch.Tensor) -> tuple[torch.Tensor, object]:
        return work(x), inspect.currentframe().f_back.f_code.co_name  # type: ignore[union-attr]

    def caller(x: torch.Tensor) -> tuple[torch.Tensor, object]:
        return looking(x + 1)

    found = armature.compile(caller, backend=backend)(torch.ones(2))
    assert found[0].tolist() == [4, 4]
    assert found[1] == "caller"
    assert any("work" in str(graph) for graph in graphs)
