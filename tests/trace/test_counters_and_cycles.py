"""`itertools.count` and `itertools.cycle` that live across graph breaks, or in a module: they go on where they were."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import armature
from armature.pipeline.session import session
from tests.support.resuming import resumes


def one() -> tuple[torch.Tensor]:
    return (torch.linspace(-1.0, 1.0, 6).reshape(2, 3),)


def counts(t):
    numbers, found = itertools.count(5, 2), []
    for position in range(6):
        found.append(t * next(numbers))
        if position % 2:
            armature.graph_break()
    return found, next(numbers)


def cycles(t):
    numbers, found = itertools.cycle([1, 2, 3]), []
    for position in range(8):
        found.append(t * next(numbers))
        if position % 2:
            armature.graph_break()
    return found, next(numbers)


def loops_over_a_counter(t):
    for number in itertools.count():
        t = t * 0.5 + number
        armature.graph_break()
        if number > 4:
            return t, number


def zips_a_cycle(t):
    found = []
    for row, number in zip([t, t + 1, t + 2, t + 3, t + 4], itertools.cycle([1, 2])):
        armature.graph_break()
        found.append(row * number)
    return found


def first_round_over_a_list_that_grows(t):
    given = [1, 2]
    numbers = itertools.cycle(given)
    first = next(numbers)
    armature.graph_break()
    given.append(9)
    return t * first, [next(numbers) for _ in range(4)]


def of_nothing(t):
    numbers = itertools.cycle([])
    armature.graph_break()
    return t * next(numbers, 3)


@pytest.mark.parametrize(
    "program", [counts, cycles, loops_over_a_counter, zips_a_cycle, first_round_over_a_list_that_grows, of_nothing]
)
def test_across_breaks(program: Callable[..., Any]) -> None:
    found = resumes(program, one)
    assert set(found.breaks) <= {"explicit-break", "iterator-over-changed-list"}
    assert "explicit-break" in found.breaks
    assert not found.eager


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps, self.factors = itertools.count(1), itertools.cycle([2, 3, 5])
        self.shifts = itertools.cycle([torch.zeros(3), torch.ones(3)])

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        return t * next(self.factors) + next(self.steps) + next(self.shifts)


def test_in_a_module() -> None:
    armature.reset()
    own, (t,) = Steps(), one()
    compiled = armature.compile(Steps(), backend="eager", fullgraph=True)
    with session().recording() as records:
        for _ in range(12):
            torch.testing.assert_close(compiled(t), own(t))
    assert len(records.compilations) <= 3
