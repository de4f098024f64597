"""Reductions, softmax, norms and losses, against eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import armature
from armature.pipeline.session import session
from armature.testing.lowering_kit import Kit

aten = torch.ops.aten
OnGpu = Callable[..., tuple[object, ...]]


@pytest.mark.parametrize("keepdim", [False, True])
def test_extremes_of_bools(kit: Kit, keepdim: bool) -> None:
    x = torch.rand(4, 5, 3) > torch.linspace(0, 1, 5)[:, None]
    for op in (aten.amax.default, aten.amin.default):
        kit.check(op, x, [0, -1], keepdim)
        kit.check(op, x, [], keepdim)
    for op in (aten.max.dim, aten.min.dim):
        kit.check(op, x, 1, keepdim)
        kit.check(op, x[0, 0, 0], 0, keepdim)
    kit.check(aten.max.default, x)
    kit.check(aten.min.default, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.bool], ids=str)
def test_sums(kit: Kit, dtype: torch.dtype) -> None:
    x = (torch.randn(3, 4, 5) * 3).to(dtype)
    kit.check(aten.sum.default, x)
    kit.check(aten.sum.dim_IntList, x, [1])
    kit.check(aten.sum.dim_IntList, x, [0, -1], True)
    kit.check(aten.sum.dim_IntList, x, None)
    kit.check(aten.sum.dim_IntList, x, [1], dtype=torch.float64)
    if dtype.is_floating_point:
        kit.check(aten.mean.dim, x, [0, 2])
        kit.check(aten.mean.default, x)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_axes(kit: Kit, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    dims = data.draw(st.lists(st.integers(-len(shape), len(shape) - 1), unique_by=lambda d: d % len(shape), max_size=4))
    x = torch.randn(shape)
    kit.check(aten.sum.dim_IntList, x, dims, data.draw(st.booleans()))
    kit.check(aten.amax.default, x, dims, data.draw(st.booleans()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_extremes(kit: Kit, dtype: torch.dtype) -> None:
    x = (torch.randn(3, 4, 5) * 3).to(dtype)
    for op in (aten.amax.default, aten.amin.default):
        kit.check(op, x, [1, 2])
        kit.check(op, x, [-1], True)
    for op in (aten.max.default, aten.min.default):
        kit.check(op, x)
    for op in (aten.max.dim, aten.min.dim):
        kit.check(op, x.flatten()[torch.randperm(60)].reshape(x.shape).unique().float(), 0)
    for op in (aten.argmax.default, aten.argmin.default):
        kit.check(op, torch.randperm(60).reshape(3, 4, 5).to(torch.float32))
        kit.check(op, torch.randperm(60).reshape(3, 4, 5).to(torch.float32), 1, True)


def test_truth(kit: Kit) -> None:
    for x in (torch.rand(3, 4) > 0.3, torch.randn(3, 4).round(), torch.randint(0, 2, (3, 4), dtype=torch.uint8)):
        for op in (aten.any.default, aten.all.default):
            kit.check(op, x)
        for op in (aten.any.dim, aten.all.dim):
            kit.check(op, x, 1)
        for op in (aten.any.dims, aten.all.dims):
            kit.check(op, x, [0, 1], True)


def test_products(kit: Kit) -> None:
    kit.check(aten.prod.default, torch.randn(3, 4))
    kit.check(aten.prod.dim_int, torch.randn(3, 4), 1, True)
    kit.check(aten.prod.dim_int, torch.randint(1, 4, (3, 4)), 0)


@pytest.mark.parametrize("correction", [0, 1, None], ids=str)
def test_variances(kit: Kit, correction: int | None) -> None:
    x = torch.randn(3, 4, 5) + 100
    kit.check(aten.var.correction, x, [1], correction=correction)
    kit.check(aten.var.correction, x, None, correction=correction)
    kit.check(aten.std.correction, x, [0, 2], correction=correction, keepdim=True)
    kit.check(aten.var_mean.correction, x, [1, 2], correction=correction, keepdim=True)
    kit.check(aten.var_mean.correction, x.to(torch.bfloat16), [2], correction=correction)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_softmax(kit: Kit, dim: int, dtype: torch.dtype) -> None:
    x, g = (torch.randn(3, 4, 5) * 5).to(dtype), torch.randn(3, 4, 5).to(dtype)
    y, z = torch.softmax(x, dim), torch.log_softmax(x, dim)
    kit.check(aten._softmax.default, x, dim, False)
    kit.check(aten._log_softmax.default, x, dim, False)
    kit.check(aten._softmax_backward_data.default, g, y, dim, dtype)
    kit.check(aten._log_softmax_backward_data.default, g, z, dim, dtype)


def test_softmax_of_a_number(kit: Kit) -> None:
    kit.check(aten._softmax.default, torch.randn(()), 0, False)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_layer_norm(kit: Kit, axes: int, affine: bool) -> None:
    x, g = torch.randn(3, 4, 5) + 2, torch.randn(3, 4, 5)
    shape = list(x.shape[-axes:])
    weight, bias = (torch.randn(shape), torch.randn(shape)) if affine else (None, None)
    kit.check(aten.native_layer_norm.default, x, shape, weight, bias, 1e-5)
    _, mean, rstd = aten.native_layer_norm.default(x, shape, weight, bias, 1e-5)
    for mask in ([True, affine, affine], [True, False, False], [False, affine, False]):
        if any(mask):
            kit.check(aten.native_layer_norm_backward.default, g, x, shape, mean, rstd, weight, bias, mask)


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5, 5)], ids=str)
def test_batch_norm(kit: Kit, shape: tuple[int, ...]) -> None:
    x, g = torch.randn(shape) * 2 + 1, torch.randn(shape)
    weight, bias, mean, var = torch.randn(3), torch.randn(3), torch.randn(3), torch.rand(3) + 0.5
    kit.check(aten._native_batch_norm_legit_functional.default, x, weight, bias, mean, var, True, 0.1, 1e-5)
    kit.check(aten._native_batch_norm_legit_no_training.default, x, weight, bias, mean, var, 0.1, 1e-5)
    kit.check(aten._native_batch_norm_legit_no_training.default, x, None, None, mean, var, 0.1, 1e-5)
    kit.check(aten.native_batch_norm.default, x, weight, bias, mean, var, False, 0.1, 1e-5)
    _, saved, rstd = aten._native_batch_norm_legit.no_stats(x, weight, bias, True, 0.1, 1e-5)
    kit.check(aten._native_batch_norm_legit.no_stats, x, weight, bias, True, 0.1, 1e-5)
    for training, mask in ((True, [True, True, True]), (False, [True, True, True]), (True, [False, True, True])):
        kit.check(
            aten.native_batch_norm_backward.default, g, x, weight, mean, var, saved, rstd, training, 1e-5, mask
        )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gpu_saves_the_running_statistics_in_inference(on_gpu: OnGpu, dtype: torch.dtype) -> None:
    given = [torch.randn(3, 2, 4).to(dtype), *(torch.rand(2).to(dtype) for _ in range(4))]
    found = on_gpu(aten.native_batch_norm.default, *given, False, 0.1, 1e-5)[1:]
    expected = given[3].float(), (given[4].float() + 1e-5).rsqrt()  # in float32, as torch's decomposition has them
    torch.testing.assert_close(found, expected)


def test_group_norm(kit: Kit) -> None:
    x = torch.randn(2, 6, 4, 5) + 1
    kit.check(aten.native_group_norm.default, x, torch.randn(6), torch.randn(6), 2, 6, 20, 3, 1e-5)
    kit.check(aten.native_group_norm.default, x, None, None, 2, 6, 20, 2, 1e-5)


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_group_norm_of_channels_last(kit: Kit, groups: int) -> None:
    x = (torch.randn(2, 6, 5, 7) + 1).to(memory_format=torch.channels_last)
    kit.check(aten.native_group_norm.default, x, torch.randn(6), torch.randn(6), 2, 6, 35, groups, 1e-5)


def test_group_norm_of_channels_last_runs_over_channels() -> None:
    """A kernel for each of the sums and for the result: one for all would read a few numbers of each pixel at a time."""
    x, weight, bias = torch.randn(2, 32, 8, 8).to(memory_format=torch.channels_last), torch.randn(32), torch.randn(32)

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.relu(F.group_norm(x, 8, weight, bias))

    with torch.no_grad():
        torch.testing.assert_close(armature.compile(norm, fullgraph=True)(x, weight, bias), norm(x, weight, bias))
    plan = session().compilations[-1].graphs[-1].plan
    readers = [k for k in plan.kernels if any(plan.buffers[name].shape == tuple(x.shape) for name in k.reads)]
    assert len(readers) == 3


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_losses(kit: Kit, reduction: int) -> None:
    x, y = torch.randn(4, 5), torch.rand(4, 5)
    kit.check(aten.mse_loss.default, x, y, reduction)
    kit.check(aten.mse_loss_backward.default, torch.randn(4, 5) if reduction == 0 else torch.randn(()), x, y, reduction)
    kit.check(aten.binary_cross_entropy_with_logits.default, x, y, None, None, reduction)
    kit.check(aten.binary_cross_entropy_with_logits.default, x, y, torch.rand(5), torch.rand(5), reduction)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_nll_loss(kit: Kit, reduction: int, weighted: bool) -> None:
    weight = torch.rand(5) if weighted else None
    for extra in ((), (3, 2)):
        x = F.log_softmax(torch.randn(4, 5, *extra), 1)
        target = torch.randint(0, 5, (4, *extra))
        target.view(-1)[1] = -100
        forward = aten.nll_loss2d_forward.default if extra else aten.nll_loss_forward.default
        backward = aten.nll_loss2d_backward.default if extra else aten.nll_loss_backward.default
        loss, total = forward(x, target, weight, reduction, -100)
        kit.check(forward, x, target, weight, reduction, -100)
        kit.check(backward, torch.rand_like(loss), x, target, weight, reduction, -100, total)
