"""Sums across rows in kernels that reduce each row: the gradients of a norm's weights beside that of its input."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import armature
from armature.pipeline.session import session

SIZES = [(torch.bfloat16, (8192, 512)), (torch.float32, (2, 4100, 300)), (torch.bfloat16, (4096, 1000))]


def gradients(dtype: torch.dtype, shape: tuple[int, ...], device: str) -> tuple[list[Tensor], list[Tensor]]:
    """Those of a layer norm and its weights, compiled, and in float64."""
    armature.reset()  # other sizes of the same function would be dynamic
    torch.manual_seed(0)
    width = shape[-1]
    leaves = [torch.randn(size, dtype=dtype, device=device, requires_grad=True) for size in (shape, width, width)]
    given = torch.randn(shape, dtype=dtype, device=device)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]

    def normed(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.layer_norm(x, (width,), w, b)

    ours = torch.autograd.grad(armature.compile(normed, fullgraph=True)(*leaves), leaves, given)
    return list(ours), list(torch.autograd.grad(normed(*exact), exact, given.double()))


def same(ours: list[Tensor], exact: list[Tensor]) -> None:
    for one, other in zip(ours, exact, strict=True):
        within = (1e-2 if one.dtype == torch.bfloat16 else 1e-5) * other.abs().max().item()
        torch.testing.assert_close(one.double(), other, rtol=0, atol=within)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("dtype", "shape"), SIZES)
def test_a_layer_norm_s_gradients_read_its_input_once(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    same(*gradients(dtype, shape, "cpu"))
    _, backward = session().kernel_sources()
    rows, sums = backward.text.split("@triton.jit")[1:]
    loop = rows[rows.index("for x_start in tl.range(") :]
    assert "num_stages=" in loop.partition("\n")[0] or shape[-1] < 512
    assert loop.count("tl.load(in0 ") == loop.count("tl.load(in2 ") == 1 and "tl.load(in1 " not in loop
    assert rows.count("helpers.sum_of_rows(") == sums.count("helpers.reduce_sum(") == 2


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "shape"), [*SIZES, (torch.float32, (4096, 4096)), (torch.bfloat16, (4096, 16384))])
def test_on_a_gpu(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    same(*gradients(dtype, shape, "cuda"))
    assert "helpers.sum_of_rows(" in session().kernel_sources()[-1].text


@pytest.mark.usefixtures("interpreted")
def test_no_load_waits_for_a_reduction() -> None:
    """Whose barrier would hold it up. A weight that all rows share comes out of a cache, and takes registers later."""

    def scaled(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return (y - x.mean(-1, keepdim=True)) * w

    x, y, w = torch.randn(64, 300), torch.randn(64, 300), torch.randn(300)
    torch.testing.assert_close(armature.compile(scaled, fullgraph=True)(x, y, w), scaled(x, y, w))
    (source,) = session().kernel_sources()
    before, _, behind = source.text.partition("helpers.reduce_sum(")
    assert before.count("tl.load(in0 ") == before.count("tl.load(in1 ") == behind.count("tl.load(") == 1
