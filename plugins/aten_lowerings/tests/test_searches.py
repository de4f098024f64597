"""Places among sorted boundaries: by comparison with all of a few, by halving many."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import Tensor

import armature
from armature.lower.data import ExternCall
from armature.pipeline.session import session
from armature.testing.lowering_kit import Kit

aten = torch.ops.aten
COUNTS = [1, 2, 3, 64, 65, 127, 128, 200]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8]


def values(dtype: torch.dtype) -> Tensor:
    """Numbers among 0 to 50, with those that are not finite."""
    found = torch.rand(6, 10) * 60 - 5
    if dtype.is_floating_point:
        found[0, :3] = torch.tensor([math.nan, math.inf, -math.inf])
    return found.clamp(0).to(dtype) if not dtype.is_floating_point else found.to(dtype)


def boundaries(dtype: torch.dtype, *shape: int) -> Tensor:
    """Sorted whole numbers, some of them several times."""
    return torch.randint(0, 50, shape).sort(-1).values.to(dtype)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", COUNTS)
def test_bucketize(kit: Kit, count: int, dtype: torch.dtype, right: bool) -> None:
    x, sorted_ones = values(dtype), boundaries(dtype, count)
    x.view(-1)[5:8] = sorted_ones[0]
    for given in (x, x.t(), x[:, ::2]):
        kit.check(aten.bucketize.Tensor, given, sorted_ones, right=right)
    kit.check(aten.bucketize.Tensor, x, sorted_ones, right=right, out_int32=True)
    kit.check(aten.bucketize.Tensor, x[0, 0], boundaries(dtype, 2 * count)[::2], right=right)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("count", COUNTS)
def test_searchsorted(kit: Kit, count: int, right: bool) -> None:
    x, rows = values(torch.float32), boundaries(torch.float32, 6, count)
    kit.check(aten.searchsorted.Tensor, rows, x, right=right)
    kit.check(aten.searchsorted.Tensor, rows[0], x, right=right, out_int32=True)
    kit.check(aten.searchsorted.Tensor, rows, x, side="right")
    kit.check(aten.searchsorted.Tensor, rows, x, side="left")
    order = torch.arange(count).expand(6, count).contiguous()
    kit.check(aten.searchsorted.Tensor, rows, x, sorter=order, extern=True)


@pytest.mark.parametrize("count", [5, 100])
def test_values_of_another_dtype(kit: Kit, count: int) -> None:
    """Both are converted to their common dtype."""
    ends = boundaries(torch.int64, count)
    for given in (values(torch.float32), values(torch.bfloat16)):
        kit.check(aten.bucketize.Tensor, given, ends)
        kit.check(aten.searchsorted.Tensor, ends, given)
        kit.check(aten.bucketize.Tensor, values(torch.int64), ends.to(given.dtype) + 0.5)
        kit.check(aten.bucketize.Tensor, values(torch.float64), ends.to(given.dtype))
    kit.check(aten.bucketize.Tensor, values(torch.int64)[0, 0], ends + 0.5)


def test_what_the_kernel_refuses_is_refused() -> None:
    bools = torch.tensor([False, True])
    with pytest.raises(Exception, match="Bool") as refused:
        torch.bucketize(bools, bools)
    with pytest.raises(refused.type, match=re.escape(str(refused.value))):
        armature.compile(torch.bucketize)(bools, bools)
    with pytest.raises(RuntimeError, match="side can only be"):
        armature.compile(lambda x: torch.searchsorted(x, x, side="up"))(torch.arange(3.0))


def test_nothing_to_search(kit: Kit) -> None:
    kit.check(aten.bucketize.Tensor, values(torch.float32), torch.empty(0), extern=True)
    kit.check(aten.bucketize.Tensor, torch.empty(0, 3), torch.arange(3.0), extern=True)


@pytest.mark.parametrize("count", [5, 100])
def test_programs(count: int) -> None:
    def program(x: Tensor, table: Tensor, ends: Tensor) -> Tensor:
        return table[torch.bucketize(x * 2, ends)].sin()

    compiled = armature.compile(program, fullgraph=True)
    table, ends = torch.randn(count + 1, 3), torch.linspace(-2, 2, count)
    for size in (7, 12, 33):
        x = torch.randn(size, 5)
        torch.testing.assert_close(compiled(x, table, ends), program(x, table, ends))
    graphs = session().compilations[-1].graphs
    assert not [n for g in graphs for n in g.loops.nodes if isinstance(n, ExternCall)]


def test_boundaries_whose_number_changes() -> None:
    compiled = armature.compile(torch.bucketize, fullgraph=True, dynamic=True)
    for count in (5, 8, 100):
        x, ends = torch.randn(7), torch.linspace(-2, 2, count)
        assert torch.equal(compiled(x, ends), torch.bucketize(x, ends))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_the_place_of_a_number_that_varies(dtype: torch.dtype) -> None:
    armature.reset()
    boundaries = (torch.arange(8) / (1 if dtype is torch.int64 else 10)).to(dtype)

    def placed(boundaries: Tensor, number: float) -> Tensor:
        return torch.bucketize(number, boundaries)

    compiled = armature.compile(placed, fullgraph=True)
    for number in (0.1, 0.3, 0.35, 7.0, -1.0, math.nan, 3):
        assert torch.equal(compiled(boundaries, number), placed(boundaries, number))
    assert session().totals().extern == 0 and len(session().compilations) <= 4
