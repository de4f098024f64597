"""Allocation is what the public function gives; versions are read right."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest
import torch
from packaging.version import Version

from armature.torch_abi import alloc
from armature.torch_abi.versions import Versions, of_process


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_empty_strided(device: str, dtype: torch.dtype) -> None:
    for current in (True, False):
        made = alloc.empty_strided(torch.device(device), current=current)((2, 3), (1, 2), dtype)
        assert (made.shape, made.stride(), made.dtype, made.device.type) == ((2, 3), (1, 2), dtype, device)
        assert not made.requires_grad


def test_sizes_of_zero_and_rank_zero() -> None:
    make = alloc.empty_strided(torch.device("cpu"))
    assert make((), (), torch.float32).shape == ()
    assert make((0, 4), (4, 1), torch.float32).numel() == 0


def test_this_process_is_supported() -> None:
    assert of_process().supported


@pytest.mark.parametrize(
    ("python", "torch_version", "supported"),
    [
        ((3, 11, 0), "2.11.0", True),
        ((3, 13, 5), "2.15.1+cu130", True),
        ((3, 10, 9), "2.13.0", False),
        ((3, 14, 0), "2.13.0", False),
        ((3, 12, 0), "2.10.0", False),
        ((3, 12, 0), "2.16.0", False),
    ],
)
def test_range(python: tuple[int, int, int], torch_version: str, supported: bool) -> None:
    assert Versions(python, Version(torch_version)).supported is supported


def test_a_tensor_is_copied_where_it_lies_otherwise() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    assert alloc.laid_out(x, (3, 1)) is x
    assert alloc.laid_out(x[:1], (7, 1)).data_ptr() == x.data_ptr()  # any stride is right along one element
    turned = alloc.laid_out(x, (1, 2))
    assert turned.stride() == (1, 2)
    assert turned.equal(x)


def test_memory_that_only_a_variable_holds_is_used_again() -> None:
    def place(tensor: torch.Tensor) -> int:
        return alloc.overlaid(tensor, (2, 3), (1, 2), torch.float32).data_ptr()

    alone = torch.ones(6)
    assert alloc.overlaid(alone, (2, 3), (1, 2), torch.float32).data_ptr() == alone.data_ptr()
    made = alloc.overlaid(alone, (2, 3), (1, 2), torch.float32)
    assert made.shape == (2, 3) and made.stride() == (1, 2) and made.dtype == torch.float32
    assert place(alone) != alone.data_ptr()  # two variables
    alias = alone.detach()
    assert alloc.overlaid(alone, (6,), (1,), torch.float32).data_ptr() != alone.data_ptr()
    del alias


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.from_numpy(numpy.ones(6, dtype=numpy.float32)),
        lambda: torch.frombuffer(bytearray(24), dtype=torch.float32),
        lambda: torch.ones(6).share_memory_(),
        lambda: torch.nn.Parameter(torch.ones(6)),
    ],
    ids=["numpy", "buffer", "shared", "parameter"],
)
def test_memory_that_others_may_know_is_not_used_again(make: Callable[[], torch.Tensor]) -> None:
    tensor = make()
    made = alloc.overlaid(tensor, (6,), (1,), torch.float32)
    assert made.data_ptr() != tensor.data_ptr() and made.shape == (6,)
