"""`warnings.catch_warnings` around tensor code: filters as in eager mode, inside and afterwards."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature

Function = Callable[[Tensor], Any]


@armature.disable
def filters_now() -> list[Any]:
    return list(warnings.filters[:3])


@armature.disable
def silence_late() -> None:
    warnings.filterwarnings("ignore", message="late", category=RuntimeWarning)


@armature.disable
def show_by(show: Any) -> Any:
    before, warnings.showwarning = warnings.showwarning, show
    return before


def silent(x: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = torch.nn.functional.softmax(x) * 2  # which warns: the dimension is implicit
        warnings.warn("not shown", UserWarning, 2)
    return y + 1


def silent_at_once(x: Tensor) -> Any:
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        y = torch.nn.functional.softmax(x) * 2
    return y + 1


def by_text(x: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Implicit.*", UserWarning)
        y = torch.nn.functional.softmax(x)
        with warnings.catch_warnings():
            warnings.resetwarnings()
            warnings.simplefilter("ignore", append=True)
            y = y * torch.nn.functional.softmax(x)
        return y * torch.nn.functional.softmax(x)


def raising(x: Tensor) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            x = x + 1
            raise ValueError
    except ValueError:
        return x * 2


def broken(x: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        with warnings.catch_warnings():
            warnings.simplefilter("once", DeprecationWarning)
            y = x * 2
            inner = filters_now()
            y = y * 3
        y = y + 1
        return y, inner, filters_now()


def changed_in_between(x: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("always", ResourceWarning)
        y = x * 2
        silence_late()
        y = y + 1
        return y, filters_now()


def shown_otherwise(x: Tensor) -> Any:
    with warnings.catch_warnings():
        y = x * 2
        show_by(print)
        y = y + 1
        return y, show_by(repr) is print


def errors(x: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            warnings.warn("raised", UserWarning, 2)
        except UserWarning:
            x = x * 2
    return x + 1


def recorded(x: Tensor) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("recorded", UserWarning, 2)
        x = x * 2
    return x + 1, [str(each.message) for each in seen]


def entered_twice(x: Tensor) -> Any:
    context = warnings.catch_warnings()
    with context:
        x = x * 2
    try:
        with context:
            x = x * 3
    except RuntimeError:
        x = x + 1
    return x


def handed_out(x: Tensor) -> Any:
    context = warnings.catch_warnings(action="ignore", category=FutureWarning)
    y = x * 2
    before = filters_now()
    with context:
        return y + 1, before, filters_now()


def refused(x: Tensor) -> Any:
    with warnings.catch_warnings():
        try:
            warnings.simplefilter("nothing")
        except (AssertionError, ValueError):
            x = x + 1
    return x * 2


IN_ONE_GRAPH: tuple[Function, ...] = (silent, silent_at_once, by_text, raising)
OTHERS: tuple[Function, ...] = (
    broken,
    changed_in_between,
    shown_otherwise,
    errors,
    recorded,
    entered_twice,
    handed_out,
    refused,
)


def outcome(run: Function) -> tuple[Any, ...]:
    """The result, as lists, and what was set and shown afterwards."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        before = [list(warnings.filters), warnings.showwarning]
        results = [run(torch.arange(3.0)) for _ in range(3)]
        assert [list(warnings.filters), warnings.showwarning] == before
    plain = [
        [
            part.tolist() if isinstance(part, Tensor) else part
            for part in (result if type(result) is tuple else [result])
        ]
        for result in results
    ]
    return plain, [str(each.message) for each in shown]


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("function", IN_ONE_GRAPH)
def test_filters_in_a_graph(function: Function, backend: str) -> None:
    compiled, eager = outcome(armature.compile(function, fullgraph=True, backend=backend)), outcome(function)
    torch.testing.assert_close(compiled[0], eager[0])
    assert compiled[1] == eager[1] == []


@pytest.mark.parametrize("function", OTHERS)
def test_filters_around_a_graph_break(function: Function) -> None:
    assert outcome(armature.compile(function, backend="eager")) == outcome(function)


def test_a_break_inside_is_the_only_one() -> None:
    report = armature.explain(changed_in_between)(torch.ones(2))
    assert len(report.graphs) == 2
    assert len(report.breaks) == 2  # at the two functions that are not compiled
