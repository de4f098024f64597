"""A learned value written under a mask trains in compiled graphs, whatever the mask says."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature


def by_item(x: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    x = x * 2
    x[mask] = value
    return x.sin()


def by_items(x: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    x = x.mT.contiguous().mT * 2
    x[mask, :] = value
    return x * value.sum()


def twice(x: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    y = x.index_put((mask,), value)
    y.index_put_((~mask,), values=value * 3, accumulate=True)
    return y


def added(x: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    return torch.index_put(x, [mask], value, accumulate=True)


def of_view(x: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    x = x.clone()
    x[:, 1:][mask[:, 1:]] = value
    return x


SHAPES = {"token": (5,), "row": (1, 5), "number": (), "column": (1, 1)}


def same_gradients(found: Tensor, expected: Tensor, inputs: tuple[Tensor, ...]) -> None:
    gradient = torch.rand_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad(found, inputs, gradient), torch.autograd.grad(expected, inputs, gradient), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("masked", ["some", "none", "all"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("program", [by_item, by_items, twice, added, of_view])
def test_gradients(program: Callable[[Tensor, Tensor, Tensor], Tensor], shape: tuple[int, ...], masked: str) -> None:
    mask = {"some": torch.rand(3, 4) > 0.5, "none": torch.zeros(3, 4, dtype=torch.bool)}.get(masked)
    mask = torch.ones(3, 4, dtype=torch.bool) if mask is None else mask
    x, value = torch.rand(3, 4, 5, requires_grad=True), torch.rand(shape, requires_grad=True)
    compiled = armature.compile(lambda *args: program(*args), fullgraph=True)  # strict: no backward runs eagerly
    expected, found = program(x, mask, value), compiled(x, mask, value)
    torch.testing.assert_close(found, expected)
    assert found.stride() == expected.stride()
    same_gradients(found, expected, (x, value))


def test_as_many_rows_as_the_mask_has_are_written_one_by_one() -> None:
    mask = torch.tensor([True, False, True])
    compiled = armature.compile(by_item)
    x, rows = torch.rand(3, 2, requires_grad=True), torch.rand(2, 2, requires_grad=True)
    torch.testing.assert_close(compiled(x, mask, rows), by_item(x, mask, rows))


@pytest.mark.parametrize("dynamic", [None, True])
def test_no_rows_are_written_where_no_element_is_masked(dynamic: bool | None) -> None:
    def program(x: Tensor, mask: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        rows = rows * 2  # used twice, so that its gradients are added up
        return by_item(x, mask, rows), rows * 3

    mask = torch.zeros(3, 4, dtype=torch.bool)
    x, rows = torch.rand(3, 4, 5, requires_grad=True), torch.rand(0, 5, requires_grad=True)
    compiled = armature.compile(program, fullgraph=True, dynamic=dynamic)
    found, expected = compiled(x, mask, rows), program(x, mask, rows)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    gradients = [torch.rand_like(result) for result in expected]
    for ours, theirs in zip(
        torch.autograd.grad(found, (x, rows), gradients),
        torch.autograd.grad(expected, (x, rows), gradients),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


FIRST, SECOND, PLACES = torch.tensor([True, False, True]), torch.tensor([True, True, False]), torch.tensor([0, 2])
TOGETHER = {
    "two masks": (FIRST, SECOND),
    "a mask and places": (FIRST, PLACES),
    "places and a mask": (PLACES, slice(None), FIRST),
    "bytes": (FIRST.byte(), PLACES),
}


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("size", [(), (2,)], ids=["number", "pair"])
@pytest.mark.parametrize("way", [operator.setitem, Tensor.index_put_])
@pytest.mark.parametrize("at", TOGETHER.values(), ids=TOGETHER)
def test_masks_beside_other_tensors(at: tuple[Any, ...], way: Callable[..., object], size: tuple[int, ...]) -> None:
    def program(x: Tensor, value: Tensor) -> Tensor:
        x = x * 1
        way(x, at, value * 2)
        return x.sin()

    if way is Tensor.index_put_:
        at = tuple(index for index in at if isinstance(index, Tensor))
    x, value = torch.rand(3, 3, 3, requires_grad=True), torch.rand(*size, 1).requires_grad_()
    found, expected = armature.compile(program, fullgraph=True)(x, value), program(x, value)
    torch.testing.assert_close(found, expected)
    same_gradients(found, expected, (x, value))


@pytest.mark.filterwarnings("ignore")
def test_what_eager_mode_refuses_is_refused() -> None:
    x = torch.rand(3, 4)
    short, full = torch.ones(2, dtype=torch.bool), torch.ones(3, dtype=torch.bool)
    for mask, value in ((short, torch.rand(4, requires_grad=True)), (full, torch.rand(3, requires_grad=True))):
        for program in (by_item, armature.compile(by_item)):
            with pytest.raises((IndexError, RuntimeError)):
                program(x, mask, value)


def test_a_number_of_another_dtype_is_converted() -> None:
    x, mask, value = torch.rand(3, 4), torch.tensor([True, False, True]), torch.rand((), dtype=torch.float64)
    for given in (value, value.clone().requires_grad_()):
        torch.testing.assert_close(armature.compile(by_item)(x, mask, given), by_item(x, mask, given))
