"""Methods of objects whose class looks attributes up in C: reading one breaks no graph, calling it breaks it once."""

from __future__ import annotations

import datetime
import decimal
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session

X = torch.ones(2)
DAY = datetime.datetime(2024, 1, 2)
PRICE = decimal.Decimal("1.5")


class Shadowed(datetime.date):
    """A date whose own attribute hides a method."""


HIDES = Shadowed(2024, 1, 2)
HIDES.isoformat = lambda: "hidden"  # type: ignore[method-assign, assignment]


def called(x: Tensor) -> Any:
    x = x * 2
    text = DAY.isoformat("x")
    return x + len(text), text


def called_with_a_tensor(x: Tensor) -> Any:
    text = io.StringIO()
    text.write(f"{x.shape} {(x * 2).sum()}")
    return x + 1, text.getvalue()


def hidden(x: Tensor) -> Any:
    x = x * 2
    return x + 1, HIDES.isoformat()


def passed_on(x: Tensor) -> Any:
    x = x * 2
    return x + 1, [*map(PRICE.compare, [PRICE, PRICE + 1])]


def only_read(x: Tensor) -> Any:
    method = DAY.isoformat
    return x * (2 if hasattr(DAY, "isoformat") and callable(method) else 3), method.__name__


@pytest.mark.parametrize("program", [called, called_with_a_tensor, hidden, passed_on, only_read])
def test_as_in_eager_mode(program: Callable[[Tensor], Any]) -> None:
    armature.reset()
    compiled = armature.compile(program, backend="eager")
    for factor in (1, 2, 3):
        assert str(compiled(X * factor)) == str(program(X * factor))


@pytest.mark.parametrize(("program", "count"), [(called, 1), (hidden, 1), (only_read, 0)])
def test_a_call_breaks_once(program: Callable[[Tensor], Any], count: int) -> None:
    assert armature.explain(program)(X).graph_break_count == count


def test_the_next_call_compiles_nothing() -> None:
    armature.reset()
    compiled = armature.compile(called, backend="eager")
    compiled(X)
    with session().recording() as records:
        compiled(X)
    assert not records.compilations
