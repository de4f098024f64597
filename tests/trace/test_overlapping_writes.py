"""Operators in place that refuse their arguments for the memory these lie in: the program sees the error, where it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from tests.support.resuming import resumes


def expanded(x: torch.Tensor) -> None:
    y = x.expand(4, 4)
    y += 1


def filled(x: torch.Tensor) -> None:
    x.expand(4, 4).fill_(3)


def local_expanded(x: torch.Tensor) -> None:
    x.clone().expand(4, 4).mul_(2)


def shifted(x: torch.Tensor) -> None:
    y = x.flatten()
    y.mul_(2)
    y[1:] += y[:-1]


def assigned(x: torch.Tensor) -> None:
    y = x.flatten()
    y[1:] = y[:-1]


def out_argument(x: torch.Tensor) -> None:
    y = x.flatten()
    torch.add(y[1:], 1, out=y[:-1])


@pytest.mark.parametrize("write", [expanded, filled, local_expanded, shifted, assigned, out_argument])
@pytest.mark.parametrize("back_end", [{"backend": "eager"}, {}])
def test_the_handler_of_the_program_sees_the_error(
    write: Callable[[torch.Tensor], None], back_end: dict[str, Any]
) -> None:
    def program(x: torch.Tensor) -> object:
        try:
            write(x)
        except RuntimeError as error:
            return x + 1, str(error)[:40]
        return x

    first, second = torch.ones(4, 1), torch.ones(4, 1)
    found: Any = armature.compile(program, **back_end)(first)
    expected: Any = program(second)
    assert found[1] == expected[1]
    assert torch.equal(found[0], expected[0])
    assert torch.equal(first, second)


def test_views_that_do_not_overlap_stay_in_the_graph() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x[:, :2].add_(x[:, 2:])
        x[0] = x[1]
        x[1:] *= 2
        x.flatten()[:4].copy_(x[2])
        return x

    run = armature.compile(program, backend="eager", fullgraph=True)
    assert torch.equal(run(torch.arange(12.0).reshape(3, 4)), program(torch.arange(12.0).reshape(3, 4)))


def test_without_a_handler_the_caller_sees_the_error() -> None:
    resumes(expanded, lambda: (torch.ones(4, 1),))
