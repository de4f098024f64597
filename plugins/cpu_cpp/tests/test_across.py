"""Sums across the rows of a kernel that reduces each row, on the CPU: gradients of norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import armature
from armature.pipeline.session import session

ROWS, WIDTH = 2048, 520  # more bytes than are as fast read twice
Run = Callable[[Tensor, Tensor, Tensor], Tensor]


def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], w, b)


def root_mean_square(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Of a sum with a bias, whose gradient sums what the kernel makes."""
    return functional.rms_norm(x + b, x.shape[-1:], w)


def in_batches(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return layer(x.view(4, -1, x.shape[-1]).transpose(0, 1), w, b).reshape(x.shape)


def gradients(run: Run, values: Sequence[Tensor]) -> list[Tensor]:
    """Those of x, w and b, in double precision."""
    leaves = [value.detach().clone().requires_grad_() for value in values[:3]]
    run(*leaves).backward(values[3])
    return [leaf.grad.double() for leaf in leaves if leaf.grad is not None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("run", [layer, root_mean_square, in_batches])
def test_gradients_are_those_in_double_precision(run: Run, dtype: torch.dtype) -> None:
    rows = ROWS * 4 // dtype.itemsize
    make = torch.Generator().manual_seed(0)
    shapes = ((rows, WIDTH), (WIDTH,), (WIDTH,), (rows, WIDTH))
    values = [torch.randn(shape, generator=make).to(dtype) for shape in shapes]
    armature.reset()
    found = gradients(armature.compile(run, fullgraph=True), values)
    exact = gradients(run, [value.double() for value in values])
    assert any("_parts0" in source.text for source in session().kernel_sources())
    for ours, best in zip(found, exact, strict=True):
        largest = float(best.abs().max())
        torch.testing.assert_close(ours, best, rtol=0, atol=largest * {2: 1e-2, 4: 2e-6, 8: 1e-13}[dtype.itemsize])


def test_threads_do_not_change_a_bit() -> None:
    values = [torch.randn(shape) for shape in ((ROWS, WIDTH), (WIDTH,), (WIDTH,), (ROWS, WIDTH))]
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            armature.reset()
            found.append(gradients(armature.compile(layer, fullgraph=True), values))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
