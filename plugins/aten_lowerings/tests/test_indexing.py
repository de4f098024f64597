"""Gathers, scatters, embeddings and pooling, against eager."""

from __future__ import annotations

import pytest
import torch

from armature.lower.lower import lower
from armature.testing.loop_evaluator import run_loops
from armature.testing.lowering_kit import Kit, context, one_operator

aten = torch.ops.aten


def test_embedding(kit: Kit) -> None:
    weight, indices = torch.randn(7, 3), torch.randint(0, 7, (4, 5))
    kit.check(aten.embedding.default, weight, indices)
    kit.check(aten.embedding.default, weight, indices.to(torch.int32))
    kit.check(aten.embedding_dense_backward.default, torch.randn(4, 5, 3), indices, 7, -1, False)
    kit.check(aten.embedding_dense_backward.default, torch.randn(4, 5, 3), indices, 7, 2, False)


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
