"""Tensors without axes, elements or values: loops where eager mode takes them for rows of one element, or for none."""

from __future__ import annotations

import pytest
import torch

import armature
from armature.pipeline.session import session
from armature.testing.lowering_kit import Kit

aten = torch.ops.aten
POINTS = {
    "both without axes": ((), ()),
    "a row of places": ((), (3,)),
    "one place": ((3,), ()),
    "no places": ((3,), (0,)),
}
DTYPES = [torch.float32, torch.bfloat16, torch.int64]


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return (torch.rand(shape) * 9 + 1).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("name", POINTS)
def test_elements_at_places(kit: Kit, name: str, dim: int, dtype: torch.dtype) -> None:
    given, shape = POINTS[name]
    x, places = numbers(given, dtype), torch.zeros(shape, dtype=torch.int64)
    whole = 0 in shape  # there is nothing to compute
    kit.check(aten.gather.default, x, dim, places, extern=whole)
    if given or places.numel() == 1:
        kit.check(aten.index_select.default, x, dim, places, extern=whole)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("name", POINTS)
def test_writes_at_places(kit: Kit, name: str, dim: int, dtype: torch.dtype) -> None:
    given, shape = POINTS[name]
    x, places = numbers(given, dtype), torch.zeros(shape, dtype=torch.int64)
    source = numbers((), dtype).expand(shape).clone()
    kit.check(aten.scatter.src, x, dim, places, source)
    kit.check(aten.scatter.value, x, dim, places, 3)
    kit.check(aten.scatter_add.default, x, dim, places, source, extern=dtype == torch.bfloat16)
    for reduce in ("amax", "amin", "prod"):
        for include_self in (True, False):
            kit.check(
                aten.scatter_reduce.two, x, dim, places, source, reduce, include_self=include_self,
                extern=dtype == torch.bfloat16,
            )  # fmt: skip


def test_a_source_with_an_axis_for_one_place(kit: Kit) -> None:
    kit.check(aten.scatter.src, torch.ones(4), 0, torch.tensor(2), torch.tensor([5.0]))
    kit.check(aten.index_put.default, torch.ones(4), [torch.zeros(0, dtype=torch.int64)], torch.zeros(0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions_of_one_element(kit: Kit, dtype: torch.dtype) -> None:
    x = numbers((), dtype)
    for keepdim in (False, True):
        for op in (aten.max.dim, aten.min.dim):
            kit.check(op, x, -1, keepdim)
        for op in (aten.argmax.default, aten.argmin.default):
            kit.check(op, x, 0, keepdim)
            kit.check(op, x, None, keepdim)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_reductions_over_no_elements(kit: Kit, dtype: torch.dtype) -> None:
    x = torch.zeros(3, 0, 2, dtype=dtype)
    for keepdim in (False, True):
        kit.check(aten.sum.dim_IntList, x, [1], keepdim)
        kit.check(aten.prod.dim_int, x, -2, keepdim)
        kit.check(aten.any.dim, x, 1, keepdim)
        kit.check(aten.all.dim, x, 1, keepdim)
        kit.check(aten.any.dims, torch.ones(2, 3).to(dtype), [], keepdim)
    kit.check(aten.sum.default, x)
    if dtype.is_floating_point:
        kit.check(aten.mean.dim, x, [1])


def compiled(program, *given):
    """The result, which is to be eager's, without a call of an operator."""
    armature.reset()
    found, expected = armature.compile(program)(*given), program(*given)
    assert found.stride() == expected.stride() and session().totals().extern == 0
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


ONE, PLACE = torch.tensor(2.0), torch.tensor(0)
COMPOSED = {
    "reduced by places": lambda x, i: x.index_reduce(0, i, x * 3, "mean"),
    "the largest by places": lambda x, i: x.index_reduce(-1, i.view(1), x * 3, "amax", include_self=False),
    "filled": lambda x, i: x.index_fill(0, i, x * 4),
    "means of writes": lambda x, i: x.scatter_reduce(0, i, x * 3, "mean"),
    "added": lambda x, i: x.scatter(0, i, x * 3, reduce="add"),
    "rolled": lambda x, i: torch.roll(x, 3) * 2,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COMPOSED)
def test_composed(name: str) -> None:
    compiled(COMPOSED[name], ONE, PLACE)


ROWS = torch.arange(24.0).view(4, 6)
MADE = {
    "like": lambda x: torch.empty_like(x).copy_(x) + 1,
    "of a size": lambda x: torch.empty(x.shape[1], dtype=torch.float64).fill_(3) + x,
    "strided": lambda x: torch.empty_strided((4, 6), (1, 4)).copy_(x),
    "permuted": lambda x: torch.empty_permuted((4, 6), (1, 0)).copy_(x),
    "written in parts": lambda x: torch.cat(
        [x.new_empty(2, 6).copy_(x[:2]), x.new_empty_strided((2, 6), (6, 1)).zero_()]
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_uninitialised_memory_takes_no_call(name: str) -> None:
    compiled(MADE[name], ROWS)


def test_uninitialised_memory_that_is_returned_or_given_to_an_operator() -> None:
    def program(x):
        return torch.empty(4, 5), torch.empty_strided((2, 3), (4, 1)), torch.empty_like(x).normal_(), x + 1

    armature.reset()
    one, two, drawn, _ = armature.compile(program)(ROWS)
    assert (one.shape, one.stride(), two.stride()) == ((4, 5), (5, 1), (4, 1))
    one.fill_(1), two.fill_(2)
    assert one.sum() == 20 and two.sum() == 12 and drawn.shape == (4, 6) and drawn.isfinite().all()


def test_memory_that_is_filled_for_equal_results_stays_so() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        armature.reset()
        assert armature.compile(lambda x: torch.empty_like(x) + 0 * x)(ROWS).isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)


def test_whole_tensors_are_rolled_in_row_major_order() -> None:
    compiled(lambda x: x.t().roll((-7,)) * 2, ROWS)
    compiled(lambda x: x.roll(31), ROWS)


@pytest.mark.parametrize("count", [3, 100])
def test_places_among_unsorted_boundaries(count: int) -> None:
    numbers = torch.randperm(count).float()
    rows = torch.stack([numbers, numbers.flip(0)])
    compiled(lambda s, o, x: torch.searchsorted(s, x, sorter=o, right=True) + 1, numbers, numbers.argsort(), ROWS)
    compiled(lambda s, o, x: torch.searchsorted(s, x, sorter=o) + 1, rows, rows.argsort(), ROWS[:2])
    compiled(lambda s: torch.searchsorted(s, 2.5, side="right") + 1, torch.arange(count))


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_sums_of_integers_by_places(dtype: torch.dtype, include_self: bool) -> None:
    x, places = torch.arange(12, dtype=dtype).view(3, 4), torch.tensor([[0, 2, 0, 1], [0, 2, 1, 1]])
    compiled(lambda x, i: x.scatter_reduce(0, i, x + 1, "sum", include_self=include_self), x, places)
