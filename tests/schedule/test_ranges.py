"""Conditions and checks whose outcome the ranges of integers tell go away; others stay, and results are eager's."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature
from armature.lower.data import Op
from armature.pipeline.session import session
from armature.schedule.ranges import ANY, RESULTS, outcome
from armature.schedule.walk import postorder

Program = Callable[[Tensor], Tensor]
CONDITIONS = {"where", "lt", "le", "gt", "ge", "eq", "ne", "logical_and", "logical_not", "minimum", "maximum"}
TABLE = torch.arange(36.0).view(9, 4)


def operations(program: Program, x: Tensor, dynamic: bool | None = None) -> set[str]:
    """The operations of the program's kernels, once its result has been compared with eager's."""
    armature.reset()
    torch.testing.assert_close(armature.compile(program, fullgraph=True, dynamic=dynamic)(x), program(x))
    kernels = [kernel for graph in session().compilations[-1].graphs for kernel in graph.plan.kernels]
    assert kernels
    return {node.op for kernel in kernels for node in postorder(kernel.roots) if isinstance(node, Op)}


IN_BOUNDS: dict[str, Program] = {
    "positions": lambda x: F.embedding(torch.arange(8), TABLE).sum(1) + x,
    "positions from the end": lambda x: TABLE[torch.arange(8) - 8].sum(1) + x,
    "a remainder": lambda x: F.embedding(x.long() % 9, TABLE).sum(1),
    "a condition": lambda x: F.embedding((x > 0).long() * 8, TABLE).sum(1),
    "a distance": lambda x: F.embedding((torch.arange(8) - 4).clamp(-3, 3) + 4, TABLE).sum(1) + x,
    "limits": lambda x: F.embedding(x.long().clamp(0, 8), TABLE).sum(1),
    "bytes": lambda x: F.embedding(x.to(torch.uint8).long(), torch.arange(1024.0).view(256, 4)).sum(1),
    "a quotient": lambda x: F.embedding((x.long() % 27) // 3, TABLE).sum(1),
}


@pytest.mark.parametrize("case", IN_BOUNDS)
def test_indices_in_bounds_are_not_checked(case: str) -> None:
    assert "check_index" not in operations(IN_BOUNDS[case], torch.linspace(-20, 30, 8).abs())


KNOWN: dict[str, Program] = {
    "positions from zero": lambda x: torch.where(torch.arange(8) >= 0, x.exp(), x),
    "positions below the size": lambda x: x.masked_fill(torch.arange(8) >= x.shape[0], -1.0),
    "never": lambda x: torch.where((torch.arange(8) < 0) & (x > 0), x.exp(), x),
    "always": lambda x: torch.where((x.long() % 5 < 5) & ~(torch.arange(8) == 9), x.exp(), x),
    "no padding": lambda x: F.pad(x[None], (0, 0), value=3.0)[0] * 2,
}


@pytest.mark.parametrize("case", KNOWN)
def test_conditions_with_one_outcome_are_gone(case: str) -> None:
    assert operations(KNOWN[case], torch.linspace(-20, 30, 8)).isdisjoint(CONDITIONS)


OPEN: dict[str, Program] = {
    "one too far": lambda x: torch.where(torch.arange(8) >= 1, x.exp(), x),
    "unknown": lambda x: torch.where(x.long() >= 0, x.exp(), x),
    "what wraps around": lambda x: torch.where(torch.arange(8, dtype=torch.int8) + 121 > 0, x.exp(), x),
    "a product that wraps": lambda x: torch.where(torch.arange(8, dtype=torch.int32) * 2**30 >= 0, x.exp(), x),
    "a number cast to a smaller type": lambda x: torch.where((x.long() % 300).to(torch.uint8) < 255, x.exp(), x),
    "floats": lambda x: torch.where(x.exp() >= 0, x.exp(), x),  # NaN is not
}


@pytest.mark.parametrize("case", OPEN)
def test_conditions_with_two_outcomes_stay(case: str) -> None:
    x = torch.linspace(-20, 300, 8)
    assert not operations(OPEN[case], x).isdisjoint({"where"})


@pytest.mark.parametrize("index", [-1, 9])
def test_an_index_out_of_bounds_is_still_found(index: int) -> None:
    program: Program = armature.compile(lambda x: F.embedding(x.long(), TABLE))
    assert torch.equal(program(torch.tensor([8.0])), TABLE[8:])
    with pytest.raises(IndexError):
        program(torch.tensor([float(index)]))


def test_sizes_that_vary_prove_what_holds_for_all_of_them() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.where(torch.arange(x.shape[0]) >= 0, x.exp(), x)

    assert operations(program, torch.randn(8), dynamic=True).isdisjoint(CONDITIONS)


def test_a_reduction_stays_with_its_loop() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.where(torch.arange(4)[:, None] < 0, x.sum(1, keepdim=True), x)

    operations(program, torch.randn(4, 8))


ENDS = [(a, b) for a, b in itertools.product(range(-3, 4), repeat=2) if a <= b]
BINARY: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "maximum": max, "minimum": min,
    "mod": operator.mod, "floordiv": operator.floordiv,
}  # fmt: skip


@pytest.mark.parametrize("op", BINARY)
def test_ranges_hold_all_values(op: str) -> None:
    for one, other in itertools.product(ENDS, repeat=2):
        low, high = RESULTS[op](one, other)
        pairs = itertools.product(range(one[0], one[1] + 1), range(other[0], other[1] + 1))
        values = [BINARY[op](a, b) for a, b in pairs if b or op not in ("mod", "floordiv")]
        assert all(low <= value <= high for value in values)


@pytest.mark.parametrize("op", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_an_outcome_is_that_of_all_values(op: str) -> None:
    for one, other in itertools.product(ENDS, repeat=2):
        pairs = itertools.product(range(one[0], one[1] + 1), range(other[0], other[1] + 1))
        found = {getattr(operator, op)(a, b) for a, b in pairs}
        assert outcome(op, one, other) == (found.pop() if len(found) == 1 else None)
    assert outcome(op, ANY, (0, 0)) is None


def test_the_range_of_a_distance() -> None:
    assert RESULTS["abs"]((-5, 3)) == (0, 5) and RESULTS["abs"]((-5, -3)) == (3, 5) and RESULTS["abs"]((2, 3)) == (2, 3)
