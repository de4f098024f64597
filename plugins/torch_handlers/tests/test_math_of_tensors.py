"""Functions of `math` given int tensors with one element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature

Program = Callable[[Tensor, Tensor], Any]


def counted(x: Tensor, step: Tensor) -> Any:
    rate = 0.1 * math.pow(step + 1, 0.5)
    step.add_(1)
    return x.add_(x, alpha=rate), rate


def made(x: Tensor, step: Tensor) -> Any:
    count = torch.tensor([3])
    return x * math.pow(count + 1, 0.5) * math.log(count, 2), math.pow(2, step)


# Programs of one graph.
WHOLE: dict[str, Program] = {
    "counted": counted,
    "made": made,
    "root": lambda x, step: x / math.sqrt(step),
    "computed": lambda x, step: x * math.log(2 * (5 - step * 3 - 100) * -1),
    "two": lambda x, step: (x + math.gcd(step, step + 2), math.comb(step + 4, step)),
    "floor": lambda x, step: x[math.floor(step) :] * math.hypot(step, 1.5),
}


def written_before(x: Tensor, step: Tensor) -> Any:
    step += 1
    return x * math.sqrt(step)


def written_between(x: Tensor, step: Tensor) -> Any:
    following = step + 1
    following.mul_(3)
    return x * math.sqrt(following), math.pow(following, 0.5)


# Programs that need the number of a tensor that is computed otherwise.
BROKEN: dict[str, Program] = {
    "written before": written_before,
    "written between": written_between,
    "float": lambda x, step: x * math.sqrt(step + 0.5),
    "of a tensor": lambda x, step: x * math.sqrt(step + x.abs().sum()),
    "another dtype": lambda x, step: x * math.sqrt(step + torch.tensor(1, dtype=torch.int32)),
}


def compared(program: Program, backend: str, dtype: torch.dtype = torch.int64, start: int = 1) -> None:
    rows: list[Any] = []
    for run in (program, armature.compile(program, backend=backend)):
        torch.manual_seed(0)
        steps = [torch.tensor([start + n], dtype=dtype) for n in range(4)]
        rows.append([(run(torch.randn(6), step), step) for step in steps])
    torch.testing.assert_close(rows[1], rows[0])


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("name", WHOLE)
def test_the_number_is_computed_before_the_graph(name: str, backend: str) -> None:
    compared(WHOLE[name], backend)
    armature.reset()
    found = armature.explain(WHOLE[name])(torch.randn(6), torch.tensor([2]))
    assert (found.graph_count, found.graph_break_count) == (1, 0)


def test_a_number_that_changes_is_compiled_once_more() -> None:
    graphs = []

    def backend(module: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
        graphs.append(module)
        return module.forward

    run, step = armature.compile(counted, backend=backend), torch.tensor([0])
    for count in range(1, 7):
        x, rate = run(torch.ones(2), step)
        assert rate == 0.1 * math.pow(count, 0.5)
        torch.testing.assert_close(x, torch.full((2,), 1 + rate))
    assert len(graphs) == 2


@pytest.mark.parametrize("name", BROKEN)
def test_numbers_computed_otherwise_break_the_graph(name: str) -> None:
    compared(BROKEN[name], "eager")
    armature.reset()
    found = armature.explain(BROKEN[name])(torch.randn(6), torch.tensor([2]))
    assert found.graph_break_count > 0


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
def test_numbers_wrap_around_in_their_dtype(dtype: torch.dtype) -> None:
    most = torch.iinfo(dtype).max
    compared(lambda x, step: (x + 1, math.pow(step * 3 + 120, 2), math.fabs(7 - step)), "eager", dtype, most - 3)


def test_an_error_is_that_of_eager_mode() -> None:
    run = armature.compile(lambda x, step: x * math.sqrt(step), backend="eager")
    for number in (4, 5, 6):
        torch.testing.assert_close(run(torch.ones(2), torch.tensor(number)), torch.full((2,), math.sqrt(number)))
    with pytest.raises(ValueError, match=r"math domain error|nonnegative"):
        run(torch.ones(2), torch.tensor(-1))
    with pytest.raises((RuntimeError, ValueError), match=r"elements|one element"):
        run(torch.ones(2), torch.tensor([1, 2]))


def test_the_number_is_that_of_its_moment_behind_a_break() -> None:
    def program(x: Tensor, step: Tensor) -> Any:
        rate = math.sqrt(step + 1)
        step.mul_(2)
        armature.graph_break()
        return x * rate, rate

    compared(program, "eager")
