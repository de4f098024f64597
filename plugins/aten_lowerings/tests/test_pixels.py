"""Convolutions with windows of one element as products, and which stay the library's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

import armature
from armature.pipeline.session import session

aten = torch.ops.aten
LAST = torch.channels_last
CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default)


def calls(targets: tuple[object, ...]) -> list[fx.Node]:
    """The calls of these operators in the graphs of the last compilation."""
    graphs = [g.aten.module.graph for g in session().compilations[-1].graphs]
    return [n for graph in graphs for n in graph.nodes if n.target in targets]


def strides(x: Tensor) -> list[int]:
    """Strides of the axes with more than one element."""
    return [step for size, step in zip(x.shape, x.stride(), strict=True) if size > 1]


def trained(model: nn.Module, x: Tensor) -> None:
    """One step of the compiled model: results, gradients and their layouts are eager's."""

    def step(run: Any) -> list[Tensor]:
        model.zero_grad()
        given = x.detach().clone().requires_grad_()
        found = run(given)
        found.sin().sum().backward()
        assert given.grad is not None
        return [found.detach(), given.grad, *(p.grad for p in model.parameters() if p.grad is not None)]

    expected = step(model)
    for ours, theirs in zip(step(armature.compile(model, fullgraph=True)), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        assert strides(ours) == strides(theirs)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((3, 20, 6, 7), torch.contiguous_format),
        ((3, 20, 6, 7), LAST),
        ((1, 20, 6, 7), torch.contiguous_format),
        ((3, 20, 1, 1), torch.contiguous_format),
        ((3, 20, 1, 1), LAST),
        ((3, 1, 6, 7), LAST),
        ((1, 20, 1, 7), LAST),
    ],
    ids=str,
)
def test_a_convolution_and_its_gradients_are_products(
    shape: tuple[int, ...], layout: torch.memory_format, dtype: torch.dtype, bias: bool
) -> None:
    x = torch.randn(shape, dtype=dtype).to(memory_format=layout)
    trained(nn.Conv2d(shape[1], 24, 1, bias=bias, dtype=dtype), x)
    assert not calls(CONVOLUTIONS)


@pytest.mark.parametrize("model", [nn.Conv1d(20, 24, 1), nn.Conv3d(20, 24, 1)], ids=["sequence", "volume"])
def test_images_have_any_number_of_sides(model: nn.Module) -> None:
    sides = (50,) if isinstance(model, nn.Conv1d) else (3, 4, 5)
    trained(model, torch.randn(2, 20, *sides))
    assert not calls(CONVOLUTIONS)


def transposed(dims: int, inputs: int, outputs: int, kernel: int, **options: Any) -> nn.Module:
    return (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 1](inputs, outputs, kernel, **options)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_transposed_convolution_of_one_pixel_is_a_product(dims: int, bias: bool, stride: int, training: bool) -> None:
    torch.manual_seed(0)
    for batch, dtype in ((1, torch.float32), (5, torch.float64)):
        armature.reset()
        model = transposed(dims, 20, 24, 3, stride=stride, bias=bias, dtype=dtype)
        x = torch.randn(batch, 20, *[1] * dims, dtype=dtype)
        if training:
            trained(model, x)
            assert not calls(CONVOLUTIONS)
            continue
        with torch.no_grad():
            expected, found = model(x), armature.compile(model, fullgraph=True)(x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        assert found.stride() == expected.stride()
        assert not calls(CONVOLUTIONS)


@pytest.mark.parametrize(
    ("options", "side"),
    [
        ({"padding": 1}, 1),
        ({"stride": 2, "output_padding": 1}, 1),
        ({"dilation": 2}, 1),
        ({"groups": 4}, 1),
        ({"stride": 3}, 2),
    ],
    ids=str,
)
def test_other_transposed_convolutions_stay(options: dict[str, int], side: int) -> None:
    armature.reset()
    model, x = transposed(2, 20, 24, 3, **options).eval(), torch.randn(2, 20, side, side)
    with torch.no_grad():
        expected, found = model(x), armature.compile(model, fullgraph=True)(x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert len(calls(CONVOLUTIONS)) == 1


WINDOWS: dict[str, tuple[tuple[int, ...], torch.memory_format]] = {
    "square": ((5, 20, 3, 3), torch.contiguous_format),
    "oblong": ((5, 20, 1, 4), torch.contiguous_format),
    "channels last": ((5, 20, 3, 3), LAST),
    "one image": ((1, 20, 3, 3), torch.contiguous_format),
    "sequence": ((5, 20, 3), torch.contiguous_format),
    "volume": ((5, 20, 3, 2, 2), torch.contiguous_format),
    "volume with channels last": ((5, 20, 3, 2, 2), torch.channels_last_3d),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", WINDOWS)
def test_a_convolution_whose_window_is_the_image_is_a_product(case: str, bias: bool, training: bool) -> None:
    torch.manual_seed(0)
    shape, layout = WINDOWS[case]
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(shape) - 3]
    for outputs, dtype in ((1, torch.float32), (24, torch.float64)):
        armature.reset()
        model = kind(20, outputs, shape[2:], stride=2, bias=bias, dtype=dtype)  # type: ignore[arg-type]
        x = torch.randn(shape, dtype=dtype).to(memory_format=layout)
        if training:
            trained(model, x)
        else:
            with torch.no_grad():
                expected, found = model(x), armature.compile(model, fullgraph=True)(x)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
            assert found.stride() == expected.stride()
        assert not calls(CONVOLUTIONS)


@pytest.mark.parametrize("last", ["image", "weight"])
def test_a_pixel_or_a_weight_with_channels_last_has_eagers_result(last: str) -> None:
    armature.reset()
    model, x = transposed(2, 20, 24, 3).eval(), torch.randn(2, 20, 1, 1)
    if last == "weight":
        model = model.to(memory_format=LAST)
    else:
        x = x.as_strided(x.shape, (20, 1, 20, 20))
    with torch.no_grad():
        expected, found = model(x), armature.compile(model, fullgraph=True)(x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert found.stride() == expected.stride()


@pytest.mark.parametrize(
    "options",
    [{"stride": 2}, {"padding": 1}, {"groups": 4}, {"kernel_size": 3}],
    ids=str,
)
def test_other_convolutions_are_the_library_s(options: dict[str, Any]) -> None:
    trained(nn.Conv2d(20, 24, **{"kernel_size": 1, **options}), torch.randn(2, 20, 6, 6))
    assert len(calls(CONVOLUTIONS)) >= 2


def test_transposed_convolutions_are_the_library_s() -> None:
    trained(nn.ConvTranspose2d(20, 24, 1), torch.randn(2, 20, 6, 6))
    assert len(calls(CONVOLUTIONS)) >= 2


def test_one_product_for_each_image_is_no_larger_than_the_images() -> None:
    """The gradient of a large weight over many small images is not computed apart for each of them."""
    trained(nn.Conv2d(64, 64, 1, bias=False), torch.randn(8, 64, 3, 3))
    (call,) = calls(CONVOLUTIONS)
    assert call.args[-1] == [False, True, False]
    assert len(calls(PRODUCTS)) == 2


def test_a_bias_and_an_activation_follow_one_product() -> None:
    model = nn.Sequential(nn.Conv2d(32, 48, 1), nn.ReLU())
    x = torch.randn(2, 32, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(armature.compile(model)(x), model(x), rtol=1e-4, atol=1e-4)
    assert [n.target for n in calls((*CONVOLUTIONS, *PRODUCTS))] == [aten.bmm.default]
    assert len(session().compilations[-1].graphs[-1].plan.kernels) == 1
