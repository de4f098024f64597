"""Gathers, scatters, embeddings and pooling, against eager."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import Tensor

import armature
from armature.lower.data import ExternCall
from armature.lower.lower import lower
from armature.pipeline.session import session
from armature.testing.loop_evaluator import run_loops
from armature.testing.lowering_kit import Kit, context, one_operator

aten = torch.ops.aten


def test_embedding(kit: Kit) -> None:
    weight, indices = torch.randn(7, 3), torch.randint(0, 7, (4, 5))
    kit.check(aten.embedding.default, weight, indices)
    kit.check(aten.embedding.default, weight, indices.to(torch.int32))
    kit.check(aten.embedding_dense_backward.default, torch.randn(4, 5, 3), indices, 7, -1, False)
    kit.check(aten.embedding_dense_backward.default, torch.randn(4, 5, 3), indices, 7, 2, False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_gradients_of_embeddings_are_summed_in_float32(kit: Kit, dtype: torch.dtype) -> None:
    """4096 numbers of 1: in 16 bits the sum would stay at 256, or 2048, as it does in eager mode on a CPU."""
    args = torch.ones(4096, 3, dtype=dtype), torch.arange(4096) % 2, 7, 1, False
    op = aten.embedding_dense_backward.default
    loops = lower(one_operator(op, args, {}, torch.empty(7, 3, dtype=dtype)), context(kit.rows))
    [found] = run_loops(loops, args[:2])
    exact = op(args[0].float(), *args[1:]).to(dtype)
    assert exact[0, 0] == 2048 and torch.equal(found, exact)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_values_that_meet_in_one_place_are_summed_in_float32(kit: Kit, dtype: torch.dtype) -> None:
    """4096 numbers of 1: in 16 bits the sum would stay at 256, or 2048."""
    start, ones, places = torch.zeros(7, 3, dtype=dtype), torch.ones(4096, 3, dtype=dtype), torch.arange(4096) % 2
    index = places[:, None].expand(4096, 3).contiguous()
    for op, args in (
        (aten.index_put.default, (start, [places], ones, True)),
        (aten.scatter_add.default, (start, 0, index, ones)),
    ):
        loops = lower(one_operator(op, args, {}, torch.empty(7, 3, dtype=dtype)), context(kit.rows))
        assert not any(isinstance(node, ExternCall) for node in loops.nodes)
        [found] = run_loops(loops, [one for arg in args for one in (arg if isinstance(arg, list) else [arg])
                                    if isinstance(one, Tensor)])  # fmt: skip
        assert found[0].tolist() == [2048] * 3 and found[2].tolist() == [0] * 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_few_values_for_a_large_result_make_no_wide_copy(dtype: torch.dtype) -> None:
    """In float32 there is nothing to widen; in 16 bits the copies would cost more than the call."""

    def put(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
        return x.index_put((places,), values, accumulate=True)

    args = torch.zeros(1000, 8, dtype=dtype), torch.tensor([1, 5, 1]), torch.ones(3, 8, dtype=dtype)
    armature.reset()
    assert torch.equal(armature.compile(put)(*args), put(*args))
    assert session().totals().extern == (dtype == torch.bfloat16)


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_sums_in_any_order_are_left_to_torch_where_they_have_to_be_deterministic(kit: Kit, deterministic: None) -> None:
    args = torch.randn(4, 5, 3), torch.randint(0, 7, (4, 5)), 7, -1, False
    op = aten.embedding_dense_backward.default
    loops = lower(one_operator(op, args, {}, torch.empty(7, 3)), context(kit.rows))
    assert [type(node) for node in loops.nodes] == [ExternCall]
    whole = torch.zeros(7, dtype=torch.int64), 0, torch.randint(0, 7, (5,)), torch.ones(5, dtype=torch.int64)
    loops = lower(
        one_operator(aten.scatter_add.default, whole, {}, torch.empty(7, dtype=torch.int64)), context(kit.rows)
    )
    assert not any(isinstance(node, ExternCall) for node in loops.nodes)  # of integers every order gives the same


def test_an_index_out_of_range_raises(kit: Kit) -> None:
    op = aten.embedding.default
    args = (torch.randn(7, 3), torch.tensor([1, 7]))
    loops = lower(one_operator(op, args, {}, torch.empty(2, 3)), context(kit.rows))
    with pytest.raises(IndexError, match="out of range"):
        run_loops(loops, args)


def test_gathers(kit: Kit) -> None:
    x = torch.randn(4, 5, 6)
    kit.check(aten.index_select.default, x, 1, torch.tensor([0, 3, 3]))
    kit.check(aten.gather.default, x, 1, torch.randint(0, 5, (4, 2, 3)))
    rows, columns = torch.tensor([[0, 3], [-1, 2]]), torch.tensor([1, -2])
    for indices in ([rows], [rows, columns], [None, columns], [None, rows, columns], [rows, None, columns]):
        kit.check(aten.index.Tensor, x, indices)


def test_scatters(kit: Kit) -> None:
    x, source = torch.randn(4, 5), torch.randn(3, 5)
    indices = torch.stack([torch.randperm(4)[:3] for _ in range(5)], 1)
    kit.check(aten.scatter_add.default, x, 0, indices % 2, source)
    kit.check(aten.scatter.src, x, 0, indices, source)
    kit.check(aten.scatter.value, x, 0, indices, 7.0)
    rows = torch.tensor([2, 0])
    kit.check(aten.index_put.default, x, [rows], torch.randn(2, 5))
    kit.check(aten.index_put.default, x, [None, rows], torch.randn(()))
    kit.check(aten.index_put.default, x, [torch.tensor([1, 1, 3])], torch.randn(3, 5), True)


def test_average_pooling(kit: Kit) -> None:
    x = torch.randn(2, 3, 8, 6)
    kit.check(aten._adaptive_avg_pool2d.default, x, [1, 1])
    kit.check(aten._adaptive_avg_pool2d.default, x, [4, 3])
    kit.check(aten.avg_pool2d.default, x, [2, 2])
    kit.check(aten.avg_pool2d.default, x, [3, 3], [2, 1], [1, 1])
    kit.check(aten.avg_pool2d.default, x, [3, 3], [1, 1], [1, 1], False, False, 5)


def test_a_mask_and_one_value_for_all_it_chooses(kit: Kit) -> None:
    x, mask = torch.randn(4, 5, 6), torch.rand(4, 5) > 0.5
    for value in (torch.tensor(2.0), torch.randn(6), torch.randn(1)):
        kit.check(aten.index_put.default, x, [mask], value)
        kit.check(aten.index_put.default, x, [mask], value, True)
    kit.check(aten.index_put.default, x, [x > 0], torch.tensor(0.5))
    kit.check(aten.index_put.default, x.to(torch.bfloat16), [x > 0], torch.tensor(0.5, dtype=torch.bfloat16))
    kit.check(
        aten.index_put.default, x[0, 0].to(torch.int32), [mask[0, 0].expand(6)], torch.tensor(3, dtype=torch.int32)
    )


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["amax", "amin", "prod"])
def test_scatters_of_extremes_and_products(kit: Kit, reduce: str, include_self: bool) -> None:
    x, source, index = torch.randn(6, 5), torch.randn(40, 8), torch.randint(0, 6, (33, 5))
    check = partial(kit.check, aten.scatter_reduce.two, reduce=reduce, include_self=include_self)
    for given in (x, x.double(), x.t().contiguous().t(), x.mul(3).int(), x.mul(3).long()):
        check(given, 0, index, source.mul(3).to(given.dtype))
    check(x, -1, index[:6, :4] % 5, source)
    check(x[0], 0, index[:, 0] % 5, source[:, 0])
    check(x, 0, index[:, :1].expand(33, 5), source)
    check(x > 0, 0, index, source > 0, extern=True)
    check(torch.tensor(2.0), 0, torch.tensor([0, 0]), torch.tensor([3.0, 4.0]), extern=True)


@pytest.mark.parametrize("reduce", ["amax", "amin", "prod"])
def test_programs_that_scatter_extremes(reduce: str) -> None:
    """Messages along the edges of a graph, of vectors and of numbers, also without an order between places."""

    def program(x: Tensor, index: Tensor) -> Tensor:
        places = index.view(-1, *[1] * (x.dim() - 1)).expand_as(x)
        kept = x.new_zeros(9, *x.shape[1:]).scatter_reduce(0, places, x * 2, reduce, include_self=False)
        return kept.exp()

    index = torch.randint(0, 8, (50,))
    for shape in ((50,), (50, 3), (50, 64)):
        x = torch.randn(shape)
        given = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled = armature.compile(program, fullgraph=True)
        found, expected = compiled(given[0], index), program(given[1], index)
        torch.testing.assert_close(found, expected)
        (found * 3).sum().backward()
        (expected * 3).sum().backward()
        torch.testing.assert_close(given[0].grad, given[1].grad)
        graphs = session().compilations[-1].graphs
        assert not [n for n in graphs[0].loops.nodes if isinstance(n, ExternCall)]


def test_the_largest_passes_nan_on() -> None:
    def program(x: Tensor, index: Tensor) -> Tensor:
        return x.new_zeros(3).scatter_reduce(0, index, x, "amax")

    x, index = torch.tensor([1.0, math.nan, 3.0, -1.0]), torch.tensor([0, 1, 1, 2])
    torch.testing.assert_close(armature.compile(program, fullgraph=True)(x, index), program(x, index), equal_nan=True)
