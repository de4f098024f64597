"""Depthwise convolutions as loops, and which convolutions stay the library's."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import armature
from armature.lower.data import ExternCall
from armature.pipeline.session import session
from armature.schedule.data import KernelPlan

aten = torch.ops.aten
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


def gradients(x: Tensor, weight: Tensor, bias: Tensor, **options: Any) -> list[list[bool]]:
    """What calls of the library compute in backward of the compiled convolution, whose gradients are eager's."""

    def block(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.conv2d(x, weight, bias, groups=x.shape[1], **options).sin().sum()

    given = [tensor for tensor in (x, weight, bias) if tensor.requires_grad]
    compiled = armature.compile(block, fullgraph=True, dynamic=False)
    found = torch.autograd.grad(compiled(x, weight, bias), given)
    torch.testing.assert_close(found, torch.autograd.grad(block(x, weight, bias), given), rtol=1e-4, atol=1e-4)
    nodes = session().compilations[-1].graphs[-1].loops.nodes
    calls = [n for n in nodes if isinstance(n, ExternCall) and n.target is aten.convolution_backward.default]
    return [list(cast(Any, call.args[-1])) for call in calls]


@pytest.mark.parametrize(
    "options", [{"padding": 2}, {"padding": (1, 3), "stride": (2, 1)}, {"padding": 4, "dilation": 2}], ids=str
)
@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("layout", [LAST, torch.contiguous_format])
def test_a_gradient_of_a_large_window_is_a_loop(
    options: dict[str, Any], learns: bool, layout: torch.memory_format
) -> None:
    x = torch.randn(2, 16, 9, 12).to(memory_format=layout).requires_grad_(learns)
    weight, bias = torch.randn(16, 1, 5, 5, requires_grad=True), torch.randn(16, requires_grad=True)
    assert gradients(x, weight, bias, **options) == [[True, False, False]] * learns


def test_a_gradient_of_another_window_is_the_librarys() -> None:
    def window(side: int) -> tuple[Tensor, Tensor]:
        return torch.randn(16, 1, side, side, requires_grad=True), torch.randn(16, requires_grad=True)

    x = torch.randn(2, 16, 24, 24)
    last = x.to(memory_format=LAST)
    assert gradients(last, *window(3)) == [[False, True, True]]  # small
    assert gradients(x, *window(3)) == [[False, True, True]]  # small, by rows
    assert gradients(torch.cat([last] * 2), *window(5), padding=2) == [[False, True, True]]  # many pixels


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="no oneDNN")
def test_backward_of_a_large_window_needs_little_memory() -> None:
    """The library's call takes up to 256 times the bytes of the weight."""
    convolution = nn.Conv2d(128, 128, 11, padding=5, groups=128)
    x = torch.randn(2, 128, 3, 3).to(memory_format=LAST).requires_grad_()
    compiled = armature.compile(convolution, fullgraph=True)
    for _ in range(2):
        total = compiled(x).sum()
        convolution.zero_grad()
        with torch.profiler.profile(profile_memory=True) as profile:
            total.backward()
    events = sorted(
        (event for event in cast(Any, profile.profiler).kineto_results.events() if event.name() == "[memory]"),
        key=lambda event: event.start_ns(),
    )
    held = itertools.accumulate(event.nbytes() for event in events)
    assert events and max(held) < 8 * convolution.weight.nbytes


def test_sizes_that_change() -> None:
    weight = torch.randn(5, 1, 3, 3)
    compiled = armature.compile(lambda x: functional.conv2d(x, weight, padding=1, groups=5), dynamic=True)
    for rows in (9, 12, 17):
        x = torch.randn(2, 5, rows, 20)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), functional.conv2d(x, weight, padding=1, groups=5))


def test_gradients_for_windows_that_change() -> None:
    bias = torch.randn(5)
    compiled = armature.compile(lambda x, w, b: functional.conv2d(x, w, b, groups=5).sin().sum(), dynamic=True)
    for side in (3, 4, 5):
        x, weight = torch.randn(2, 5, 9, 9, requires_grad=True), torch.randn(5, 1, side, side, requires_grad=True)
        found = torch.autograd.grad(compiled(x, weight, bias), (x, weight))
        expected = torch.autograd.grad(functional.conv2d(x, weight, bias, groups=5).sin().sum(), (x, weight))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("padding", ["valid", "same", 1])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_one_number_of_padding_stands_for_all_axes(rank: int, padding: int | str) -> None:
    convolve = getattr(functional, f"conv{rank}d")
    x, weight = torch.rand(1, 2, *[5] * rank), torch.rand(2, 1, *[3] * rank)
    found = armature.compile(lambda x, w: convolve(x, w, padding=padding, groups=2), fullgraph=True)(x, weight)
    torch.testing.assert_close(found, convolve(x, weight, padding=padding, groups=2))
