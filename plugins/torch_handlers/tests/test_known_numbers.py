"""Numbers of tensors that depend on constants only."""

from __future__ import annotations

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


KNOWN: dict[str, Callable[..., Any]] = {
    "scales": scales,
    "item": lambda x: x * torch.tensor(3.0).log2().item(),
    "int": lambda x: x * int(torch.arange(5).sum()),
    "of a list": lambda x: x * float(torch.tensor([0.5, 1.5]).prod()),
    "of doubles": lambda x: x * float(torch.tensor(3.0, dtype=torch.float64).exp()),
    "index": lambda x: x[int(torch.tensor(1.5))],
    "bool": lambda x: (x, torch.tensor(True).item()),
    "with a history": lambda x: x * torch.tensor(2.0, requires_grad=True).exp().item(),
}
UNKNOWN: dict[str, Callable[..., Any]] = {
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
    for k in range(7):
        x, number = torch.rand(3 + k), 1.5 + k
        torch.testing.assert_close(compiled(x, number), program(x, number))
        counts.append(sum("resumed" in one.function for one in session().compilations))
    assert counts[0] == 0 and counts[4] > 0 and len(set(counts[4:])) == 1
