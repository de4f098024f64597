"""Numbers of tensors that depend on constants only."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session


def scales(x: Tensor) -> Tensor:
    """As detection models choose the level of a pyramid for a picture."""
    found = [2 ** float(torch.tensor(size / 8).log2().round()) for size in x.shape]
    return x * found[0] + found[1]


def under_autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        product = torch.full((1, 3), 1.01) @ torch.full((3, 1), 1.01)
    return x * float(product)


def after_a_write(x: Tensor) -> Tensor:
    number = torch.tensor(3.0)
    before = number.item()
    number += x.sum()
    return x * number.item() + before


def written_by_another_name(x: Tensor) -> Tensor:
    number = torch.tensor([3.0, 4.0])
    number.data[:1] = x.sum()
    return x * float(number.sum())


def of_values(x: Tensor) -> Tensor:
    return x * (torch.tensor(2.0) + x.sum()).item()


def drawn(x: Tensor) -> Tensor:
    torch.manual_seed(0)
    return x * torch.rand(2).sum().item()


def of_state(x: Tensor) -> Tensor:
    return x * int(torch.get_rng_state().sum())


def infinite(x: Tensor) -> Tensor:
    try:
        return x * int(torch.tensor(0.0).log())
    except OverflowError:
        return x + 1


def as_arguments(x: Tensor) -> list[Tensor]:
    """torch.div of two numbers gives a tensor, which some models take for a number."""
    half = torch.div(x.shape[0], 2, rounding_mode="trunc")
    made = [x.view(2, half, 3), x.new_zeros((half + 1, 2)), torch.linspace(half * 0.5, 2, 4), x.repeat(half, 1)]
    return [*made, x.sum(dim=half - 1), torch.full((2,), half * 3), *x.split(half), x[: half - 1]]


def as_counts(x: Tensor) -> list[Tensor]:
    count = torch.tensor([1, 3]).max()
    return [x + k for k in range(count)] + [(x, x + 1, x + 2)[count - 1], x * operator.index(count)]


def as_conditions(x: Tensor) -> Tensor:
    number = torch.tensor(3.0)
    if number < 2:
        raise ValueError
    if not number or bool(number == 4):
        return x - 1
    return x + (5 if torch.tensor(False) or number > 2 else 6)


KNOWN: dict[str, Callable[..., Any]] = {
    "as arguments": as_arguments,
    "as counts": as_counts,
    "as conditions": as_conditions,
    "of math": lambda x: x * (math.sqrt(torch.tensor(2.0)) + math.floor(torch.tensor([1.5]))),
    "list": lambda x: x * torch.tensor([1, 2]).tolist()[1],
    "nested list": lambda x: (x, torch.eye(2).tolist(), torch.tensor(1.5).tolist(), torch.zeros(2, 0).tolist()),
    "loop over a list": lambda x: [x[k] * k for k in torch.arange(3).tolist()],
    "scales": scales,
    "item": lambda x: x * torch.tensor(3.0).log2().item(),
    "int": lambda x: x * int(torch.arange(5).sum()),
    "of a list": lambda x: x * float(torch.tensor([0.5, 1.5]).prod()),
    "of doubles": lambda x: x * float(torch.tensor(3.0, dtype=torch.float64).exp()),
    "index": lambda x: x[int(torch.tensor(1.5))],
    "bool": lambda x: (x, torch.tensor(True).item()),
    "with a history": lambda x: x * torch.tensor(2.0, requires_grad=True).exp().item(),
}


def condition_of_values(x: Tensor) -> Tensor:
    return x + 1 if torch.tensor(2.0) < x.sum() else x - 1


def condition_of_two(x: Tensor) -> Tensor:
    try:
        return x + 1 if torch.tensor([1, 2]) else x - 1
    except RuntimeError:
        return x + 3


def count_after_a_write(x: Tensor) -> list[Tensor]:
    count = torch.tensor(1)
    count += (x.sum() > 10).long()
    return [x + k for k in range(count)]


def negative_root(x: Tensor) -> Tensor:
    try:
        return x * math.sqrt(torch.tensor(-1.0))
    except ValueError:
        return x + 3


def index_of_a_float(x: Tensor) -> Tensor:
    try:
        return x[operator.index(torch.tensor(1.5))]
    except TypeError:
        return x + 3


UNKNOWN: dict[str, Callable[..., Any]] = {
    "condition of values": condition_of_values,
    "condition of two": condition_of_two,
    "count after a write": count_after_a_write,
    "long list": lambda x: x * sum(torch.arange(5000).tolist()),
    "argument of values": lambda x: x.new_zeros(torch.tensor(1) + (x.sum() > 10)),
    "of math, without a result": negative_root,
    "index of a float": index_of_a_float,
    "under autocast": under_autocast,
    "after a write": after_a_write,
    "written by another name": written_by_another_name,
    "of values": of_values,
    "drawn": drawn,
    "of state": of_state,
    "infinite": infinite,
}


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("name", KNOWN)
def test_is_known(name: str, backend: str) -> None:
    compiled = armature.compile(KNOWN[name], backend=backend, fullgraph=True)
    x = torch.rand(4, 3)
    torch.testing.assert_close(compiled(x), KNOWN[name](x))


@pytest.mark.parametrize("name", UNKNOWN)
def test_is_not_known(name: str) -> None:
    compiled = armature.compile(UNKNOWN[name], backend="eager")
    for k in range(3):
        x = torch.rand(4, 3) + k
        torch.rand(k)
        state = torch.get_rng_state()
        found = compiled(x)
        torch.set_rng_state(state)
        torch.testing.assert_close(found, UNKNOWN[name](x))


def of_float(x: Tensor, number: float) -> Tensor:
    return x * float(torch.tensor(number).exp())


def of_size(x: Tensor, number: float) -> Tensor:
    return x * float(torch.tensor([x.shape[0] / 8, 1.0]).sum())


@pytest.mark.parametrize("program", [of_float, of_size])
def test_numbers_that_change(program: Callable[[Tensor, float], Tensor]) -> None:
    """They are constants at first. Then the graph breaks, and one compilation of the rest serves all of them."""
    armature.reset()
    compiled = armature.compile(program, backend="eager")
    counts = []
    for k in range(8):
        x, number = torch.rand(3 + k), 1.5 + k
        torch.testing.assert_close(compiled(x, number), program(x, number))
        counts.append(sum("resumed" in one.function for one in session().compilations))
    assert counts[0] == 0 and counts[4] > 0
    assert len(set(counts[5:])) == 1  # what is computed from a size varies after the size does
