"""Items at ints that change, and tensors of one number where torch takes a number: one graph, with eager's answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature
from armature.pipeline.session import session

Function = Callable[[Tensor, Any], Any]
TIMES = 3


def written(x: Tensor, n: Any) -> Tensor:
    x = x.clone()
    x[n] = 1
    return x


ITEMS: dict[str, Function] = {
    "row": lambda x, n: x[n] * 2,
    "column": lambda x, n: x[:, n] * 2,
    "element": lambda x, n: x[n, 0] + x[0, n] + x[n, n],
    "last axis": lambda x, n: x[..., n],
    "new axes": lambda x, n: (x[None, n, :4], x[n, None], x[n, ..., None], x[None, ..., n, None]),
    "slices": lambda x, n: (x[:n], x[:, n:], x[1:n, ..., n]),
    "written": written,
}
COUNTS: dict[str, Function] = {
    "arange": lambda x, n: torch.arange(n) * 2,
    "rows": lambda x, n: x[torch.arange(1, n)],
    "zeros": lambda x, n: torch.zeros(n, 2),
    "full": lambda x, n: torch.full((n, 2), 3.0),
    "narrow": lambda x, n: x.narrow(0, 0, n) * 2,
    "by keyword": lambda x, n: torch.zeros(size=(n, 8)) + x.narrow(0, start=1, length=n),
    "pad": lambda x, n: F.pad(x, (0, n, 1, 1)),
    "filled": lambda x, n: torch.full((2, 2), n),
    "expand": lambda x, n: x.expand(n, 6, 8) + 1,
    "reshape": lambda x, n: torch.zeros(n, 7).reshape(7, n),
}
CONSTANTS: dict[str, Function] = {  # torch makes constants of these numbers, whatever they are to the graph
    "roll and tile": lambda x, n: torch.tile(x.roll(n, 0), (n, 1)),
    "topk and tril": lambda x, n: (x.topk(n).values, torch.tril(x, n), x.diagonal(n)),
    "parts": lambda x, n: (*x.split(n), *x.chunk(n)),
}


def check(fn: Function, make: Callable[[int], Any], numbers: tuple[int, ...]) -> None:
    armature.reset()
    quick = armature.compile(fn, fullgraph=True)
    for number in numbers:
        x = torch.randn(6, 8)
        got, wanted = quick(x, make(number)), fn(x, make(number))
        for mine, theirs in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, wanted)), strict=True):
            torch.testing.assert_close(mine, theirs)
            assert mine.stride() == theirs.stride()


@pytest.mark.parametrize("make", [int, torch.tensor])
@pytest.mark.parametrize("name", ITEMS)
def test_items(name: str, make: Callable[[int], Any]) -> None:
    check(ITEMS[name], make, (3, 2, 4, 5))
    assert len(session().compilations) <= TIMES
    check(ITEMS[name], make, (-3, -2, -1, 0, 1, 2))


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str) -> None:
    check(COUNTS[name], torch.tensor, (3, 2, 4, 5))
    assert len(session().compilations) <= TIMES


@pytest.mark.parametrize("name", CONSTANTS)
def test_numbers_that_become_constants(name: str) -> None:
    check(CONSTANTS[name], torch.tensor, (3, 2, 3))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
def test_other_ints(dtype: torch.dtype) -> None:
    check(ITEMS["row"], lambda number: torch.tensor(number, dtype=dtype), (3, 2, -1))


def changed_before(x: Tensor, n: Tensor) -> Tensor:
    n.add_(1)
    return x[n]


def set_before(x: Tensor, n: Tensor) -> Tensor:
    n.set_(torch.tensor(1))
    return x[n]


def replaced_before(x: Tensor, n: Tensor) -> Tensor:
    n.data = torch.tensor(2)
    return x[n]


def changed_after(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    row = x[n] * 1
    n.add_(1)
    return row, n


def through_an_alias(x: Tensor, n: Tensor) -> Tensor:
    n.view(1).zero_()
    return x[n]


@pytest.mark.parametrize("fn", [changed_before, set_before, replaced_before, changed_after, through_an_alias])
def test_the_number_is_that_of_the_moment(fn: Function) -> None:
    armature.reset()
    quick = armature.compile(fn)
    for number in (3, 2, 1, 3):
        x, mine, theirs = torch.randn(6, 8), torch.tensor(number), torch.tensor(number)
        torch.testing.assert_close(quick(x, mine), fn(x, theirs))
        assert mine == theirs


def test_masks_and_numbers_to_fill_with_are_no_places() -> None:
    armature.reset()
    x = torch.randn(6, 8)
    for n in (torch.tensor(True), torch.tensor(1, dtype=torch.uint8)):
        torch.testing.assert_close(armature.compile(lambda x, n: x[n])(x, n), x[n])
    assert torch.equal(armature.compile(lambda n: torch.full((2,), n))(torch.tensor(3)), torch.tensor([3, 3]))


def test_out_of_range_is_the_error_of_eager() -> None:
    armature.reset()
    quick = armature.compile(lambda x, n: x[n, 0])
    for n in (3, 2, 4):
        quick(torch.ones(6, 8), torch.tensor(n))
    with pytest.raises(IndexError, match="index 6 is out of bounds for dimension 0 with size 6"):
        quick(torch.ones(6, 8), torch.tensor(6))
