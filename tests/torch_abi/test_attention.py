"""The seam to attention: results without numbers are like those with."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import _create_empty_block_mask, noop_mask

from armature.torch_abi.attention import attention_results, item_by_tensors, nested_attention, runs_fused


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_results_as_of_real_tensors(dtype: torch.dtype) -> None:
    q = torch.randn(2, 4, 3, 8, dtype=dtype).transpose(1, 2)
    k = torch.randn(2, 3, 5, 8, dtype=dtype)
    mask = (*_create_empty_block_mask(q, k).as_tuple()[:-1], noop_mask)

    def score(s, b, h, i, j):
        return s + i - j

    real = torch.ops.higher_order.flex_attention(q, k, k, score, mask, 0.5, {})
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(x) for x in (q, k, k)]
        found = attention_results(fakes, score, mask, 0.5, ((), ()))
    for one, other in zip(found, real, strict=True):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())


def test_items() -> None:
    x = torch.arange(12).reshape(3, 4)
    one = torch.tensor(1)
    assert torch.equal(item_by_tensors(x, (one, 2)), x[1, 2])
    assert torch.equal(item_by_tensors(x, one), x[1])
    assert torch.equal(item_by_tensors(x, (slice(1), 2)), x[:1, 2])
    with FakeTensorMode() as mode:
        assert item_by_tensors(mode.from_tensor(x), mode.from_tensor(one)).shape == (4,)


def test_attention_of_nested_tensors_gives_what_eager_gives() -> None:
    offsets = torch.tensor([0, 2, 5])
    held = [torch.randn(5, 2, size, requires_grad=True) for size in (3, 3, 4)]
    parts = [torch.nested.nested_tensor_from_jagged(one, offsets).transpose(1, 2) for one in held]
    eager = torch.nn.functional.scaled_dot_product_attention(*parts)
    found = nested_attention(*parts)
    assert (found.shape, found._strides, found.dtype) == (eager.shape, eager._strides, eager.dtype)  # type: ignore[attr-defined]
    assert found.requires_grad and eager.requires_grad
    assert found.offsets() is eager.offsets() is offsets  # type: ignore[attr-defined]


def test_without_a_gpu_no_kernel_of_one_runs_attention() -> None:
    with FakeTensorMode():
        x = torch.empty(2, 4, 64, 16, device="cuda")
        assert runs_fused(x, x, x, None) == torch.cuda.is_available()


@pytest.mark.gpu
def test_whether_attention_is_one_kernel_of_a_gpu_is_torchs_choice() -> None:
    with FakeTensorMode():
        x, mask = (torch.empty(2, 4, 128, size, device="cuda", dtype=torch.bfloat16) for size in (64, 128))
        narrow = x[..., :20].contiguous()
        assert runs_fused(x, x, x, None) and runs_fused(x, x, x, mask) and runs_fused(*[x.float()] * 3, None)
        assert not runs_fused(narrow, narrow, narrow, mask) and not runs_fused(*[x.double()] * 3, None)
        with sdpa_kernel(SDPBackend.MATH):
            assert not runs_fused(x, x, x, None)
