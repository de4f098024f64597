"""Variables that closures share and that have no value where they are read: the error is eager's, after a break too."""

# ruff: noqa: E731, F821, F841

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from tests.support.resuming import resumes


def deleted(x: torch.Tensor) -> Any:
    v = 1
    f = lambda: v
    y = x + f()
    del v
    print(end="")
    try:
        return y, v
    except UnboundLocalError as error:
        return y, str(error)


def deleted_after_the_break(x: torch.Tensor) -> Any:
    v = 1
    f = lambda: v
    print(end="")
    y = x + f()
    del v
    try:
        del v
    except NameError as error:
        return y, type(error), str(error)


def never_bound(x: torch.Tensor) -> Any:
    if x.dim() > 5:
        v = 1
    y = x * 2
    print(end="")
    f = lambda: v
    try:
        return y, v
    except UnboundLocalError as error:
        return y, str(error), f is None


def handled(x: torch.Tensor) -> Any:
    y = x + 1
    try:
        raise ValueError(3)
    except ValueError as error:
        print(end="")
        f = lambda: error
        y = y + f().args[0]
    print(end="")
    try:
        return y, error
    except NameError as other:
        return y, type(other), str(other)


def read_by_another(x: torch.Tensor) -> Any:
    v = 1
    f = lambda: v
    y = x + f()
    del v
    print(end="")
    try:
        return y, f()
    except NameError as error:
        return y, type(error), str(error)


def not_caught(x: torch.Tensor) -> Any:
    if x.dim() > 5:
        v = 1
    y = x * 2
    print(end="")
    return (lambda: y)(), v, lambda: v


def bound_in_time(x: torch.Tensor) -> Any:
    found = []
    y = x + 1
    print(end="")
    for k in range(3):
        try:
            v = k
            raise ValueError(v)
        except ValueError as error:
            found.append((lambda: error.args[0] + v)())
    return y * 2, found


def sharing() -> list[Callable[..., Any]]:
    v: Any = 1

    def deletes(x: torch.Tensor) -> Any:
        nonlocal v
        v = x * 2
        y = x + v
        del v
        return y

    def sets_again(x: torch.Tensor) -> Any:
        nonlocal v
        v = 3
        del v
        v = x * 2
        return v + 1

    def reads() -> Any:
        try:
            return v
        except NameError as error:
            return str(error)

    return [deletes, sets_again, reads]


def one() -> tuple[torch.Tensor]:
    return (torch.ones(2),)


PROGRAMS: list[Callable[..., Any]] = [
    deleted,
    deleted_after_the_break,
    never_bound,
    handled,
    read_by_another,
    not_caught,
]


@pytest.mark.parametrize("fn", PROGRAMS)
def test_the_error_is_that_of_eager_mode(fn: Callable[[torch.Tensor], Any]) -> None:
    resumes(fn, one)


def test_variables_bound_in_time_cost_no_graph() -> None:
    found = resumes(bound_in_time, one)
    assert not found.eager
    assert found.graphs == [["add"], ["mul"]]


def test_a_variable_of_the_caller_is_deleted() -> None:
    deletes, sets_again, reads = sharing()
    quick_deletes, quick_sets, theirs = sharing()
    quick_deletes, quick_sets = (
        armature.compile(fn, backend="eager", fullgraph=True) for fn in (quick_deletes, quick_sets)
    )
    for ours, wanted in [(quick_deletes, deletes), (quick_sets, sets_again), (quick_deletes, deletes)] * 2:
        assert str(ours(torch.ones(2))) == str(wanted(torch.ones(2)))
        assert str(theirs()) == str(reads())
