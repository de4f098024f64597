"""Operators of the program that write to their arguments, and calls with sparse gradients: they run between kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import armature
from armature.pipeline.session import session


@torch.library.custom_op("armature_tests_writing::add_into", mutates_args={"x"})
def add_into(x: Tensor, y: Tensor) -> None:
    x.add_(y)


@torch.library.custom_op("armature_tests_writing::add_and_double", mutates_args={"x"})
def add_and_double(x: Tensor, y: Tensor) -> Tensor:
    x.add_(y)
    return y * 2


add_and_double.register_fake(lambda x, y: torch.empty_like(y))


def to_computed(x: Tensor) -> Any:
    z = x.detach() * 2
    add_into(z, x.detach())
    return (z.sin() + x).cos(), z


def to_a_view(x: Tensor) -> Any:
    z = x.detach().clone()
    torch.ops.armature_tests_writing.add_into(z[1:], x[1:].detach())
    doubled = torch.ops.armature_tests_writing.add_and_double(z, y=z * 3)
    return (z * x).sum(), doubled, z


def without_gradients(x: Tensor) -> Any:
    with torch.no_grad():
        kept = x.exp()
        add_into(kept, x)
    return kept * x


def to_what_is_saved(x: Tensor) -> Any:
    y = x * 2
    z = (y * y).sum()
    add_into(y.detach(), x.detach())
    return z + y.sum()


def run(fn: Callable[..., Any], grad: bool) -> list[Any]:
    x = torch.arange(6.0).reshape(2, 3).requires_grad_(grad)
    result = fn(x)
    try:
        if grad:
            (result if isinstance(result, Tensor) else result[0]).sum().backward()
    except RuntimeError as error:
        return [type(error), "modified by an inplace operation" in str(error)]
    return [result, x.grad]


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("fn", [to_computed, to_a_view, without_gradients, to_what_is_saved])
def test_writing_operators(fn: Callable[..., Any], grad: bool) -> None:
    compiled = armature.compile(fn, fullgraph=True)
    for _ in range(2):
        expected, found = run(fn, grad), run(compiled, grad)
        if expected[0] is RuntimeError:
            assert found == expected
        else:
            torch.testing.assert_close(found, expected)


def test_what_stands_around_becomes_kernels() -> None:
    armature.compile(to_computed, fullgraph=True)(torch.ones(2, 3))
    (record,) = [one for one in session().compilations if one.function == "to_computed"]
    assert len(record.graphs) == 2


def test_writes_to_an_input_are_counted() -> None:
    def write(b: Tensor, x: Tensor) -> None:
        add_into(b, x.sin())

    expected, given = torch.zeros(3), torch.zeros(3)
    write(expected, torch.ones(3))
    armature.compile(write, fullgraph=True)(given, torch.ones(3))
    torch.testing.assert_close(given, expected)
    assert given._version == expected._version


def test_sparse_gradients() -> None:
    one, bag = nn.Embedding(5, 3, sparse=True), nn.EmbeddingBag(5, 3, mode="sum", sparse=True)
    places = torch.tensor([0, 1, 1])

    def loss(column: Tensor) -> Tensor:
        picked = torch.gather(column, 0, places[:, None], sparse_grad=True)
        looked_up = F.embedding(places, one.weight, None, None, 2.0, False, True)
        return (one(places) * 2).sum() + bag(places[None]).sin().sum() + picked.sum() + looked_up.exp().sum()

    found = []
    for fn in (loss, armature.compile(loss, fullgraph=True)):
        one.zero_grad()
        bag.zero_grad()
        column = torch.ones(5, 1, requires_grad=True)
        fn(column).backward()
        gradients = [one.weight.grad, bag.weight.grad, column.grad]
        assert all(grad is not None and grad.is_sparse for grad in gradients)
        found.append([grad.to_dense() for grad in gradients if grad is not None])
    torch.testing.assert_close(found[1], found[0])
