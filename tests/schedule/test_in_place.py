"""Writes to part of a tensor go into the tensor itself, wherever nobody can tell, and are right where somebody can."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session
from armature.schedule.data import KernelPlan

Program = Callable[[Tensor, Tensor, Tensor], object]


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(6, 8, generator=generator),
        torch.randn(2, 8, generator=generator),
        torch.tensor([4, 1]),
    )


def plan_of(fn: Program, **options: object) -> KernelPlan:
    """The plan; checks results, inputs and shared memory of three calls on the way."""
    armature.reset()
    run = armature.compile(fn, fullgraph=True, **options)
    found, wanted = inputs(), inputs()
    for _ in range(3):
        with torch.no_grad():
            results = [one(*given) for one, given in ((run, found), (fn, wanted))]
        for mine, eager in zip(*map(flat, results), strict=True):
            torch.testing.assert_close(mine, eager)
            assert mine.stride() == eager.stride()
            mine.add_(1)
            eager.add_(1)
        torch.testing.assert_close(found, wanted)
    [graph] = session().compilations[-1].graphs
    return graph.plan


def flat(results: object) -> list[Tensor]:
    return [] if results is None else list(results) if isinstance(results, tuple) else [results]  # type: ignore[list-item]


def put(x: Tensor, y: Tensor, i: Tensor) -> None:
    x[i] = y


def put_column(x: Tensor, y: Tensor, i: Tensor) -> None:
    x[:, i] = y[0, :6, None]


def add_at(x: Tensor, y: Tensor, i: Tensor) -> None:
    x.index_add_(0, i, y)


def accumulate(x: Tensor, y: Tensor, i: Tensor) -> None:
    x.index_put_((i,), y, accumulate=True)


def scattered(x: Tensor, y: Tensor, i: Tensor) -> Tensor:
    x.scatter_(0, i[:, None].expand(2, 8), y)
    return x.sum(0)


def one_row(x: Tensor, y: Tensor, i: Tensor) -> Tensor:
    x[3] = y[0]
    return x @ y.t()


def rows(x: Tensor, y: Tensor, i: Tensor) -> None:
    x[1:5:2] = y


def last_columns(x: Tensor, y: Tensor, i: Tensor) -> None:
    x[2:4, -3:] = y[:, :3]


def two_writes(x: Tensor, y: Tensor, i: Tensor) -> Tensor:
    x[i] = y
    x[0] = y[1] * 2
    return x @ y.t()


def read_before(x: Tensor, y: Tensor, i: Tensor) -> Tensor:
    product = x @ y.t()
    x[i] = x[i] * 2 + y
    return product


ONCE: list[Program] = [put, put_column, add_at, accumulate, scattered, one_row, rows, read_before]


@pytest.mark.parametrize("fn", ONCE)
def test_only_the_part_is_written(fn: Program) -> None:
    plan = plan_of(fn)
    [given] = [name for name in plan.inputs if plan.buffers[name].shape == (6, 8)]
    copying = [k for k in plan.kernels if given in k.writes and any(v.extent == 6 for v in k.outer)]
    assert not copying or fn is put_column
    writing = [k for k in plan.kernels if given in k.writes]
    assert len(writing) == 1


def kept(x: Tensor, y: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    before = x.clone()
    x[i] = y
    return before, x + 1


def of_itself(x: Tensor, y: Tensor, i: Tensor) -> None:
    x[i] = x[:2] + 1


def turned(x: Tensor, y: Tensor, i: Tensor) -> None:
    x[1:3] = x[0:2].flip(0)


def shifted(x: Tensor, y: Tensor, i: Tensor) -> None:
    x[torch.arange(1, 6)] = x[torch.arange(5)]


def not_in_place(x: Tensor, y: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    return x.index_put((i,), y), x.index_add(0, i, y)


def read_later(x: Tensor, y: Tensor, i: Tensor) -> Tensor:
    new = x.index_put((i,), y)
    total = x.sum(0) + new.sum(0)
    x.copy_(new)
    return total


def both_are_given(x: Tensor, y: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    x[i] = y
    return x * 1, x.index_put((i,), y * 2)


def of_a_product(x: Tensor, y: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    product = x @ x.t()
    before = product.sum()
    product[i] = y[:, :6]
    return product, before


def of_a_returned_one(x: Tensor, y: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    product = x @ x.t()
    return product, product.index_put((i,), y[:, :6]).sin()


def through_a_view(x: Tensor, y: Tensor, i: Tensor) -> None:
    x.t()[:, 1] = y[0]
    x.view(3, 2, 8)[1] = y


def written_and_read_back(x: Tensor, y: Tensor, i: Tensor) -> None:
    x[0] = y[0]
    x[1] = x[0] * 2
    x[i] = x[:2].clone()


SEEN: list[Program] = [
    two_writes, last_columns, kept, of_itself, turned, shifted, not_in_place, read_later, both_are_given, of_a_product,
    of_a_returned_one, through_a_view, written_and_read_back,
]  # fmt: skip


@pytest.mark.parametrize("fn", SEEN)
def test_others_see_what_eager_shows(fn: Program) -> None:
    plan_of(fn)


@pytest.mark.parametrize("fn", [put, add_at, one_row, rows, two_writes, read_later])
def test_with_sizes_that_change(fn: Program) -> None:
    plan_of(fn, dynamic=True)


def test_a_product_is_written_to_where_it_lies() -> None:
    plan = plan_of(of_a_product)
    assert sum(plan.buffers[name].shape == (6, 6) for name in plan.buffers) == 1


def test_an_index_out_of_range_leaves_the_input_as_eager_does() -> None:
    run = armature.compile(put, fullgraph=True)
    seen = []
    for call in (run, put):
        x, y, _ = inputs()
        call(x, y, torch.tensor([0, 1]))
        with pytest.raises(IndexError):
            call(x, y * 2, torch.tensor([2, 9]))
        seen.append(x)
    torch.testing.assert_close(*seen)


def test_gradients_of_what_is_written() -> None:
    def fn(x: Tensor, y: Tensor, i: Tensor) -> Tensor:
        cache = x * 1
        cache[i] = y * 2
        cache[0] = y[1]
        return (cache @ cache.t()).sin()

    seen = []
    for call in (armature.compile(fn, fullgraph=True), fn):
        x, y, i = inputs()
        x.requires_grad_(), y.requires_grad_()
        call(x, y, i).square().sum().backward()
        seen.append((x.grad, y.grad))
    torch.testing.assert_close(*seen)
