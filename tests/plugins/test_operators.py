"""A plugin of somebody else tells what the schema of its operator doesn't: the layout of results, a shorter call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import armature
from armature.plugin_api import Operator, hookimpl
from armature.plugins import manager

CALLS: list[str] = []


@torch.library.custom_op("armature_rows::columns", mutates_args=())
def columns(x: Tensor) -> Tensor:
    """Gives columns, and its rule for tensors without numbers says rows."""
    return (x + 1).t().contiguous().t()


@columns.register_fake
def rows(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype)


@pytest.fixture(autouse=True)
def afresh() -> None:
    """Code that was compiled with other rows is forgotten."""
    armature.reset()
    CALLS.clear()


def short(x: Tensor) -> Tensor:
    CALLS.append("short")
    return (x + 1).t().contiguous().t()


def by_columns(args: object, result: Tensor) -> Tensor:
    return torch.empty_strided(result.shape, (1, result.shape[0]), dtype=result.dtype)


def with_rows(**facts: object) -> object:
    class Vendor:
        @hookimpl
        def armature_operators(self) -> list[Operator]:
            return [Operator(torch.ops.armature_rows.columns.default, **facts)]  # type: ignore[arg-type]

    return Vendor()


def program(x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    y = torch.ops.armature_rows.columns(x * 2)
    return y - 1, y.stride()


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_strides_are_those_that_the_row_tells(backend: str) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    with manager().registered(with_rows(relaid=by_columns), "vendor"):
        found, strides = armature.compile(program, backend=backend)(x)
    expected, truth = program(x)
    assert strides == truth == (1, 2)
    torch.testing.assert_close(found, expected, check_stride=True)


@pytest.mark.parametrize("function", [None, short])
def test_the_shorter_way_is_called(function: Callable[..., Tensor] | None) -> None:
    with manager().registered(with_rows(function=function, relaid=by_columns, reliable_strides=True), "vendor"):
        found, _ = armature.compile(program, dynamic=False)(torch.ones(2, 3))
    assert torch.equal(found, torch.full((2, 3), 2.0))
    assert len(CALLS) == (function is short)


def test_a_row_for_no_operator_is_reported() -> None:
    class Vendor:
        @hookimpl
        def armature_operators(self) -> list[Operator]:
            return [Operator(torch.mm)]  # type: ignore[arg-type]

    with manager().registered(Vendor(), "vendor"):
        (problem,) = [one for one in manager().problems if "armature_operators" in str(one)]
    assert "not an overload such as torch.ops.aten.add.Tensor" in str(problem)
