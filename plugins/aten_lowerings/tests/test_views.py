"""Views, copies, joins and padding, against eager."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from armature.lower.data import Loop
from armature.testing.lowering_kit import Kit

aten = torch.ops.aten
X = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)

VIEWS = [
    (aten.view.default, X, [6, 20]), (aten.view.default, X, [-1]), (aten.view.default, X, [2, 3, 2, 2, 5]),
    (aten._unsafe_view.default, X, [6, 1, 20]), (aten.permute.default, X, [3, 1, 0, 2]),
    (aten.permute.default, X, [0, -1, 1, 2]), (aten.transpose.int, X, -1, 0), (aten.t.default, X[0, 0]),
    (aten.t.default, X[0, 0, 0]), (aten.expand.default, X[:, :1], [7, 2, 3, 4, 5]),
    (aten.expand.default, X[:, :1], [-1, 3, -1, 5]), (aten.squeeze.default, X[:1, :, :1]),
    (aten.squeeze.dim, X[:1], 0), (aten.squeeze.dim, X, 0), (aten.squeeze.dims, X[:1, :, :1], [0, -2]),
    (aten.unsqueeze.default, X, -1), (aten.unsqueeze.default, X, 0), (aten.slice.Tensor, X, 2, 1, 3),
    (aten.slice.Tensor, X, -1, -4, 9223372036854775807, 2), (aten.slice.Tensor, X, 1, 0, -1),
    (aten.select.int, X, 1, -1), (aten.select.int, X, -1, 2), (aten.split.Tensor, X, 2, 2), (aten.split.Tensor, X, 3,
    -1),
    (aten.split_with_sizes.default, X, [1, 4], 3), (aten.unbind.int, X, 1), (aten.diagonal.default, X, 1, 2, 3),
    (aten.diagonal.default, X, -1, 0, 1), (aten.unfold.default, X, 3, 2, 1), (aten.alias.default, X),
    (aten.detach.default, X),
]  # fmt: skip


@pytest.mark.parametrize(("op", "x", "args"), [(c[0], c[1], c[2:]) for c in VIEWS], ids=lambda v: str(v)[:30])
def test_views_are_no_loops(kit: Kit, op: torch._ops.OpOverload, x: torch.Tensor, args: tuple[object, ...]) -> None:
    loops = kit.check(op, x, *args)
    assert not loops.nodes


COPIES = [
    (aten.clone.default, X.permute(2, 0, 3, 1)), (aten.clone.default, X[:, 1:, ::2]), (aten.flip.default, X, [0, -1]),
    (aten.roll.default, X, [1, -2], [0, 3]), (aten.repeat.default, X, [2, 1, 1, 3, 1]), (aten.cat.default, [X,
    X + 1], 1),
    (aten.cat.default, [X, X[..., :2]], -1), (aten.cat.default, [torch.ones(0), X[0, 0, 0]], 0),
    (aten.stack.default, [X, X * 2], 1), (aten.stack.default, [X, X * 2], -1),
    (aten.constant_pad_nd.default, X, [1, 2, 0, 1], 3.0), (aten.constant_pad_nd.default, X, [-1, 1], 0),
    (aten.slice_scatter.default, X, X[:, :, 1:3] * 9, 2, 1, 3),
    (aten.slice_scatter.default, X, X[:, :, ::2] * 9, 2, 0, 9223372036854775807, 2),
    (aten.select_scatter.default, X, X[:, 0] * 9, 1, -1), (aten.view.dtype, X, torch.int32),
    (aten.diagonal_scatter.default, X, X.diagonal(1, 2, 3) * 9, 1, 2, 3),
    (aten.diagonal_scatter.default, X, X.diagonal(-1, 3, 1) * 9, -1, -1, 1),
    (aten.diagonal_scatter.default, X, X.diagonal() * 9), (aten.cat.default, [X, X[:, :0], X + 1], 1),
    (aten.cat.default, [X[..., :0], X], -1),
    (aten.tril.default, X, 1), (aten.triu.default, X, -1),
]  # fmt: skip


@pytest.mark.parametrize(("op", "x", "args"), [(c[0], c[1], c[2:]) for c in COPIES], ids=lambda v: str(v)[:30])
def test_copies(kit: Kit, op: torch._ops.OpOverload, x: torch.Tensor, args: tuple[object, ...]) -> None:
    loops = kit.check(op, x, *args)
    assert loops.nodes and all(isinstance(n, Loop) for n in loops.nodes)


def test_layouts_of_copies(kit: Kit) -> None:
    kit.check(aten.clone.default, X.transpose(1, 2), memory_format=torch.contiguous_format)
    kit.check(aten.clone.default, X, memory_format=torch.channels_last)
    kit.check(aten._to_copy.default, X.transpose(1, 2), dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16, torch.float16, torch.float64, torch.uint8])
@pytest.mark.parametrize("source", [torch.float32, torch.int64, torch.bool, torch.bfloat16])
def test_conversions(kit: Kit, source: torch.dtype, dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, 0.3, 1.7, 2.0, 100.0]).to(source)
    kit.check(aten._to_copy.default, x, dtype=dtype)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_reshapes_of_permuted_tensors(kit: Kit, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    x = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    x = x.permute(data.draw(st.permutations(range(len(shape)))))
    parts: list[int] = []
    left = x.numel()
    while left > 1:
        part = data.draw(st.sampled_from([d for d in range(2, left + 1) if left % d == 0]))
        parts.append(part)
        left //= part
    kit.check(aten.reshape.default, x, parts)


CREATIONS = [
    (aten.full.default, [3, 4], 2.5), (aten.full.default, [], 7), (aten.full_like.default, X, 2),
    (aten.zeros_like.default, X),
    (aten.ones_like.default, X), (aten.new_zeros.default, X, [2, 2]), (aten.zeros.default, [4]), (aten.ones.default,
    [4]),
    (aten.scalar_tensor.default, 2.0), (aten.arange.default, 5), (aten.arange.start, 2, 9),
    (aten.arange.start_step, 2, 19, 3), (aten.arange.start_step, 0.5, 3.0, 0.25), (aten.eye.default, 4), (aten.eye.m,
    3, 5),
    (aten.fill.Scalar, X, 3),
]  # fmt: skip


@pytest.mark.parametrize(("op", "args"), [(c[0], c[1:]) for c in CREATIONS], ids=lambda v: str(v)[:30])
def test_creation(kit: Kit, op: torch._ops.OpOverload, args: tuple[object, ...]) -> None:
    kit.check(op, *args)


@pytest.mark.parametrize("ends", [(0.5, 6.9, 1.6), (-2.7, 3, 1), (5, -4.5, -1.5)])
def test_counting_in_integers_drops_fractions(kit: Kit, ends: tuple[float, float, float]) -> None:
    kit.check(aten.arange.start_step, *ends, dtype=torch.int64)
