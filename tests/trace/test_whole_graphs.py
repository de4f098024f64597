"""What breaks no graph, since its result follows from what tracing knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature.errors import Unsupported

Program = Callable[[torch.Tensor], Any]
EXTREMES: dict[str, Program] = {
    "tensor and int": lambda x: max(x.sum(), 3),
    "int and tensor": lambda x: x * min(3, x.sum()),
    "tensor and float": lambda x: x / max(x.norm(), 1e-6),
    "number chosen": lambda x: x * min(x.sum(), 0.5),
    "first of equal ones": lambda x: x * max(x.amax(), x.amax().clone(), 2.5),
    "tensors": lambda x: min(x.sum(), x.mean(), x.amax()),
    "of a list": lambda x: max([x.sum(), 1, 2.0]),
    "of a generator": lambda x: max(row.sum() for row in x),
    "ints": lambda x: x * max(x.long().sum(), 2),
    "bool": lambda x: x * max(x.sum(), True),
    "nan": lambda x: x * max(x.sum() * float("nan"), 1),
}


@pytest.mark.parametrize("program", EXTREMES.values(), ids=EXTREMES)
@pytest.mark.parametrize("trains", [False, True])
def test_min_and_max_of_tensors_and_numbers(program: Program, trains: bool) -> None:
    results = []
    for run in (program, armature.compile(program, backend="eager", fullgraph=True)):
        x = torch.arange(6.0).reshape(2, 3).requires_grad_(trains)
        found = run(x)
        if trains:
            found.sum().backward()
        results.append((found, x.grad))
    torch.testing.assert_close(results[1], results[0], equal_nan=True)


@pytest.mark.parametrize("number", [2.5, torch.ones(1)])
def test_of_another_dtype_or_shape_is_not_chosen_in_a_graph(number: Any) -> None:
    def program(x: torch.Tensor) -> Any:
        return max(x.sum(), number)

    x = torch.arange(6)
    with pytest.raises(Unsupported):
        armature.compile(program, backend="eager", fullgraph=True)(x)


def test_broken_graphs_give_the_number_itself() -> None:
    def program(x: torch.Tensor) -> Any:
        return min(x.sum(), 3)

    found = armature.compile(program, backend="eager")(torch.ones(6))
    assert type(found) is int and found == 3


MADE: dict[str, Program] = {
    "sizes": lambda x: x.new(2, 3).fill_(1),
    "size": lambda x: x.new(x.shape).zero_(),
    "none": lambda x: x.new(),
    "data": lambda x: (x.new([1, 2]), x.new((3, 4))),
    "rows": lambda x: x.new(x.size(0)).zero_(),
    "shape": lambda x: torch._shape_as_tensor(x) + 1,
}


@pytest.mark.parametrize("program", MADE.values(), ids=MADE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32])
def test_tensors_made_of_sizes(program: Program, dtype: torch.dtype) -> None:
    compiled = armature.compile(program, backend="eager", fullgraph=True)
    for rows in (2, 3, 4):
        x = torch.ones(rows, 3, dtype=dtype)
        torch.testing.assert_close(compiled(x), program(x))


def test_new_of_a_tensor_shares_its_memory() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = x.new(y)  # type: ignore[attr-defined]
        made.mul_(2)
        return made, x + y[0]

    x, y, known = torch.ones(3), torch.arange(3.0), torch.arange(3.0)
    found, expected = armature.compile(program, backend="eager", fullgraph=True)(x, y), program(x, known)
    torch.testing.assert_close((found, y), (expected, known))
    assert found[0].data_ptr() == y.data_ptr() and expected[0].data_ptr() == known.data_ptr()


@pytest.mark.parametrize("other", [torch.arange(3), torch.ones(3, dtype=torch.float64)])
def test_new_of_a_tensor_of_another_dtype_raises_as_in_eager_mode(other: torch.Tensor) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.new(other) + 1  # type: ignore[attr-defined,no-any-return]

    for run in (program, armature.compile(program, backend="eager")):
        with pytest.raises(TypeError, match="expected TensorOptions"):
            run(torch.ones(3))


def test_classes_that_derive_from_one() -> None:
    class Base: ...

    class First(Base):
        scale = 2

    def program(x: torch.Tensor) -> torch.Tensor:
        for cls in Base.__subclasses__():
            x = x * cls.scale
        return x

    compiled = armature.compile(program, backend="eager", fullgraph=True)
    x = torch.ones(3)
    assert torch.equal(compiled(x), x * 2) and torch.equal(compiled(x), x * 2)

    class Second(Base):
        scale = 3

    assert torch.equal(compiled(x), x * 6)


@torch.profiler.record_function("a range")
def in_a_range(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_ranges_of_the_profiler_as_decorators() -> None:
    x = torch.ones(3)
    assert torch.equal(armature.compile(lambda x: in_a_range(x) * 2, backend="eager", fullgraph=True)(x), x * 4)
