"""Enlarged and reduced images: the operators that stay ATen's on a CPU, and gradients of repeated elements as loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature
from armature.lower.data import ExternCall
from armature.pipeline.session import session
from armature.testing.lowering_kit import Kit
from armature_aten_lowerings.repeats import nearest, step_of

aten = torch.ops.aten
Program = Callable[[Tensor], Tensor]
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda x: x,
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "steps": lambda x: x[..., ::2],
}
IMAGES: dict[str, dict[str, Any]] = {
    "nearest": {"scale_factor": 2},
    "nearest by a fraction": {"scale_factor": 1.5},
    "nearest, fewer": {"size": (3, 5)},
    "nearest, other factors": {"size": (30, 12)},
    "exact": {"scale_factor": 2, "mode": "nearest-exact"},
    "exact by a fraction": {"scale_factor": (1.7, 2.5), "mode": "nearest-exact"},
    "bilinear": {"scale_factor": 2, "mode": "bilinear"},
    "bilinear between corners": {"size": (13, 7), "mode": "bilinear", "align_corners": True},
    "bilinear by a ratio": {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True},
    "bicubic": {"scale_factor": (2, 1.5), "mode": "bicubic"},
    "antialiased": {"size": (4, 5), "mode": "bilinear", "antialias": True},
}
OTHERS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "a row": ((2, 3, 10), {"scale_factor": 2}),
    "a row, linear": ((2, 3, 10), {"scale_factor": 2, "mode": "linear"}),
    "a volume": ((2, 3, 4, 5, 6), {"scale_factor": 2}),
    "a volume, linear": ((2, 3, 4, 5, 6), {"size": (7, 5, 3), "mode": "trilinear", "align_corners": True}),
}


def stayed() -> list[str]:
    """Operators that stayed ATen calls."""
    graphs = session().compilations[-1].graphs
    return [str(n.target) for g in graphs for n in g.loops.nodes if isinstance(n, ExternCall)]


def check(program: Program, given: Tensor) -> None:
    """Results, gradients and their layouts are eager's."""
    armature.reset()
    ours, theirs = (given.clone().requires_grad_() for _ in range(2))
    results = [armature.compile(program, fullgraph=True)(ours), program(theirs)]
    torch.testing.assert_close(*results, equal_nan=True)
    assert results[0].stride() == results[1].stride()
    for result in results:
        result.float().square().sum().backward()
    assert ours.grad is not None and theirs.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad, equal_nan=True)
    assert ours.grad.stride() == theirs.grad.stride()
    with torch.no_grad():
        found, wanted = armature.compile(program, fullgraph=True)(given), program(given)
    torch.testing.assert_close(found, wanted, equal_nan=True)
    assert found.stride() == wanted.stride()


@pytest.mark.parametrize("options", IMAGES.values(), ids=IMAGES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_images(options: dict[str, Any], layout: str) -> None:
    check(lambda x: F.interpolate(x.sin(), **options), LAYOUTS[layout](torch.randn(2, 3, 10, 12)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["nearest", "nearest by a fraction", "bilinear", "bicubic"])
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    check(lambda x: F.interpolate(x, **IMAGES[name]), torch.randn(2, 3, 10, 12).to(dtype))


@pytest.mark.parametrize(("shape", "options"), OTHERS.values(), ids=OTHERS)
def test_rows_and_volumes(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    check(lambda x: F.interpolate(x, **options), torch.randn(shape))


def test_numbers_that_are_not_finite() -> None:
    x = torch.randn(1, 2, 6, 6)
    x[0, 0, 2, 3], x[0, 1, 5, 5] = math.nan, math.inf
    for options in (IMAGES["nearest"], IMAGES["bilinear"]):
        check(lambda x, options=options: F.interpolate(x, **options), x)  # type: ignore[misc]


def test_repeated_elements_and_their_gradients_are_loops() -> None:
    for shape in ((2, 3, 10), (2, 3, 10, 12), (2, 3, 4, 5, 6)):
        for mode in ("nearest", "nearest-exact"):
            check(lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode), torch.randn(shape))  # type: ignore[misc]
            assert stayed() == []


@pytest.mark.parametrize("size", [(15,), (7,), (13,), (45, 51), (14, 39), (30, 12), (9, 33, 5), (7, 7, 7)])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_other_factors_are_loops_too(size: tuple[int, ...], mode: str) -> None:
    check(lambda x: F.interpolate(x, size=size, mode=mode), torch.randn(2, 3, *(10, 32, 11)[: len(size)]))
    assert stayed() == []


@pytest.mark.parametrize("factor", [1.5, 0.5, 0.7, 1.3, 2.5, 3.7])
def test_the_elements_read_are_the_kernels(factor: float) -> None:
    """Whatever the factor is rounded to, for each size of an image."""
    for size in (2, 3, 10, 21, 50, 96):
        x = torch.arange(float(size)).expand(1, 1, size)
        count = int(size * factor)
        for scale in (factor, None):
            for name, shift in (("upsample_nearest1d", 0), ("_upsample_nearest_exact1d", 1)):
                expected = getattr(aten, name)(x, [count], scale).flatten().tolist()
                places = nearest(size, count, scale, Fraction(shift, 2))
                assert list(places) == expected
                step = step_of(places, Fraction(shift, 2))
                if step is not None:
                    assert [int(step * (n + Fraction(shift, 2))) for n in range(count)] == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8], ids=str)
def test_interpolated_by_the_nearest(kit: Kit, dtype: torch.dtype) -> None:
    x = (torch.randn(2, 3, 10, 21) * 5).to(dtype)
    for name in ("upsample_nearest2d", "_upsample_nearest_exact2d"):
        operator = getattr(aten, name).default
        for given in (x, x.to(memory_format=torch.channels_last)):
            kit.check(operator, given, [15, 13])
            kit.check(operator, given, [7, 40], 0.75, 1.95)


def test_images_in_rows_are_the_librarys_in_both_directions() -> None:
    armature.reset()
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    armature.compile(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), fullgraph=True)(x).sum().backward()
    assert stayed() == ["aten.upsample_bilinear2d.default", "aten.upsample_bilinear2d_backward.default"]


def test_channels_last_are_loops_forward() -> None:
    armature.reset()
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
    armature.compile(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), fullgraph=True)(x).sum().backward()
    assert stayed() == ["aten.upsample_bilinear2d_backward.default"]


CHANGING: dict[str, Program] = {
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest by a fraction": lambda x: F.interpolate(x, scale_factor=1.3),
    "nearest, fewer": lambda x: F.interpolate(x, scale_factor=0.7),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bilinear by a fraction": lambda x: F.interpolate(x, scale_factor=1.3, mode="bilinear"),
}


@pytest.mark.parametrize("program", CHANGING.values(), ids=CHANGING)
def test_sizes_that_change(program: Program) -> None:
    armature.reset()
    compiled = armature.compile(program, fullgraph=True, dynamic=True)
    for size in (8, 11, 15):
        ours = torch.randn(2, 3, size, size + 2, requires_grad=True)
        theirs = ours.detach().clone().requires_grad_()
        torch.testing.assert_close(compiled(ours), program(theirs))
        compiled(ours).square().sum().backward()
        program(theirs).square().sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert len(session().compilations) == 1


def test_gradients_of_gradients() -> None:
    def penalty(fn: Program, x: Tensor) -> Tensor:
        (grad,) = torch.autograd.grad(fn(x).pow(3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(grad.square().sum(), x)
        return second

    def program(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=2, mode="bilinear")

    x = torch.randn(1, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(penalty(armature.compile(program), x), penalty(program, x))


def test_autocast() -> None:
    def program(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return F.interpolate(x.bfloat16(), scale_factor=2, mode="bilinear")

    check(program, torch.randn(1, 2, 8, 8))


def test_per_sample_gradients() -> None:
    def loss(x: Tensor) -> Tensor:
        return F.interpolate(x[None], scale_factor=2, mode="bilinear").square().sum()

    def program(x: Tensor) -> Tensor:
        return torch.func.vmap(torch.func.grad(loss))(x)

    x = torch.randn(3, 2, 4, 4)
    torch.testing.assert_close(armature.compile(program)(x), program(x))


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sampled_grids(layout: str, align_corners: bool) -> None:
    grid = torch.rand(2, 5, 7, 2) * 2.4 - 1.2
    check(lambda x: F.grid_sample(x, grid, align_corners=align_corners), LAYOUTS[layout](torch.randn(2, 3, 10, 12)))


ENLARGED: dict[str, tuple[tuple[int, ...], list[int], str]] = {
    "a row": ((2, 3, 10), [5], "upsample_nearest1d_backward"),
    "an image": ((2, 3, 10, 8), [5, 4], "upsample_nearest2d_backward"),
    "by many": ((2, 3, 15, 8), [3, 2], "upsample_nearest2d_backward"),
    "a volume": ((2, 3, 4, 6, 3), [2, 2, 3], "upsample_nearest3d_backward"),
    "an exact row": ((2, 3, 10), [5], "_upsample_nearest_exact1d_backward"),
    "an exact image": ((2, 3, 10, 8), [5, 4], "_upsample_nearest_exact2d_backward"),
    "an exact volume": ((2, 3, 4, 6, 3), [2, 2, 3], "_upsample_nearest_exact3d_backward"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("shape", "size", "name"), ENLARGED.values(), ids=ENLARGED)
def test_gradients_of_repeated_elements(
    kit: Kit, shape: tuple[int, ...], size: list[int], name: str, dtype: torch.dtype
) -> None:
    operator = getattr(aten, name).default
    grad = torch.randn(shape).to(dtype)
    kit.check(operator, grad, list(shape[2:]), [2, 3, *size])
    if grad.dim() == 4:
        kit.check(operator, grad.to(memory_format=torch.channels_last), list(shape[2:]), [2, 3, *size])
    more = [n + 1 for n in shape[2:]]
    kit.check(operator, torch.randn(2, 3, *more), more, [2, 3, *size], extern=True)
