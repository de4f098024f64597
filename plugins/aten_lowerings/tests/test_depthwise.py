"""Depthwise convolutions as loops, and which convolutions stay the library's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import armature
from armature.lower.data import ExternCall
from armature.pipeline.session import session
from armature.schedule.data import KernelPlan

LAST = torch.channels_last
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "image": ((2, 5, 9, 21), (5, 1, 3, 3), {"padding": 1}),
    "steps": ((2, 5, 9, 38), (5, 1, 3, 3), {"padding": 1, "stride": 2}),
    "spread": ((2, 5, 9, 20), (5, 1, 3, 3), {"padding": 2, "dilation": 2}),
    "unequal": ((2, 5, 9, 20), (5, 1, 1, 4), {"padding": (0, 3), "stride": (2, 1)}),
    "without padding": ((2, 5, 9, 20), (5, 1, 2, 2), {}),
    "sequence": ((2, 5, 40), (5, 1, 5), {"padding": 2}),
    "volume": ((2, 3, 4, 5, 6), (3, 1, 2, 2, 2), {"padding": 1}),
}


def library_calls() -> int:
    """Operators that stayed ATen calls."""
    return sum(isinstance(n, ExternCall) for g in session().compilations[-1].graphs for n in g.loops.nodes)


def plan() -> KernelPlan:
    """The plan of the last graph."""
    return session().compilations[-1].graphs[-1].plan


def convolved(x: Tensor, weight: Tensor, bias: Tensor | None, options: dict[str, Any]) -> Tensor:
    """The compiled convolution, compared with eager's."""
    function = (functional.conv1d, functional.conv2d, functional.conv3d)[x.dim() - 3]

    def convolution(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return function(x, weight, bias, groups=x.shape[1], **options)

    with torch.no_grad():
        found = armature.compile(convolution, fullgraph=True)(x, weight, bias)
        expected = convolution(x, weight, bias)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert found.stride() == expected.stride()
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_each_channel_has_a_window_of_its_own(case: str, dtype: torch.dtype, bias: bool) -> None:
    image, weight, options = CASES[case]
    convolved(
        torch.randn(image, dtype=dtype),
        torch.randn(weight, dtype=dtype),
        torch.randn(weight[0], dtype=dtype) if bias else None,
        options,
    )
    assert library_calls() == 0


@pytest.mark.parametrize("case", ["image", "steps", "spread", "unequal", "without padding"])
def test_channels_last(case: str) -> None:
    image, weight, options = CASES[case]
    convolved(torch.randn(image).to(memory_format=LAST), torch.randn(weight), None, options)
    assert library_calls() == 0


def test_a_large_window_needs_channels_last() -> None:
    x, weight = torch.randn(2, 32, 12, 12), torch.randn(32, 1, 5, 5)
    convolved(x, weight, None, {"padding": 2})
    assert library_calls() == 1
    convolved(x.to(memory_format=LAST), weight, None, {"padding": 2})
    assert library_calls() == 0


def test_a_weight_is_turned_once_and_not_at_each_pixel() -> None:
    convolved(torch.randn(2, 32, 24, 24).to(memory_format=LAST), torch.randn(32, 1, 3, 3), None, {"padding": 1})
    turned, convolution = plan().kernels
    assert convolution.reads[-1] in turned.writes


@pytest.mark.parametrize("weight", [(10, 1, 3, 3), (5, 5, 3, 3)], ids=["two for each", "all of them"])
def test_other_convolutions_are_the_librarys(weight: tuple[int, ...]) -> None:
    x, window = torch.randn(2, 5, 9, 9), torch.randn(weight)
    groups = 5 // weight[1]
    with torch.no_grad():
        found = armature.compile(lambda x, w: functional.conv2d(x, w, groups=groups), fullgraph=True)(x, window)
    torch.testing.assert_close(found, functional.conv2d(x, window, groups=groups))
    assert library_calls() == 1


def test_a_transposed_one_is_the_librarys() -> None:
    x, window = torch.randn(2, 5, 9, 9), torch.randn(5, 1, 3, 3)
    with torch.no_grad():
        found = armature.compile(lambda x, w: functional.conv_transpose2d(x, w, groups=5), fullgraph=True)(x, window)
    torch.testing.assert_close(found, functional.conv_transpose2d(x, window, groups=5))
    assert library_calls() == 1


def test_what_follows_is_part_of_the_loop() -> None:
    x, weight, factor = torch.randn(2, 5, 9, 20), torch.randn(5, 1, 3, 3), torch.randn(5, 1, 1)

    def block(x: Tensor, weight: Tensor, factor: Tensor) -> Tensor:
        return torch.relu(functional.conv2d(x, weight, padding=1, groups=5) * factor)

    with torch.no_grad():
        torch.testing.assert_close(armature.compile(block, fullgraph=True)(x, weight, factor), block(x, weight, factor))
    assert len(plan().kernels) == 1


def test_gradients() -> None:
    x, weight = torch.randn(2, 5, 9, 20, requires_grad=True), torch.randn(5, 1, 3, 3, requires_grad=True)

    def block(x: Tensor, weight: Tensor) -> Tensor:
        return functional.conv2d(x, weight, padding=1, groups=5).square().sum()

    found = torch.autograd.grad(armature.compile(block, fullgraph=True)(x, weight), (x, weight))
    torch.testing.assert_close(found, torch.autograd.grad(block(x, weight), (x, weight)))


def test_sizes_that_change() -> None:
    weight = torch.randn(5, 1, 3, 3)
    compiled = armature.compile(lambda x: functional.conv2d(x, weight, padding=1, groups=5), dynamic=True)
    for rows in (9, 12, 17):
        x = torch.randn(2, 5, rows, 20)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), functional.conv2d(x, weight, padding=1, groups=5))


@pytest.mark.parametrize("padding", ["valid", "same", 1])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_one_number_of_padding_stands_for_all_axes(rank: int, padding: int | str) -> None:
    convolve = getattr(functional, f"conv{rank}d")
    x, weight = torch.rand(1, 2, *[5] * rank), torch.rand(2, 1, *[3] * rank)
    found = armature.compile(lambda x, w: convolve(x, w, padding=padding, groups=2), fullgraph=True)(x, weight)
    torch.testing.assert_close(found, convolve(x, weight, padding=padding, groups=2))
