"""Maximum pooling: loops where nobody reads positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature
from armature.lower.data import ExternCall
from armature.pipeline.session import session
from armature.testing.lowering_kit import Kit

aten = torch.ops.aten
Program = Callable[[Tensor], Tensor]
WINDOWS: dict[str, dict[str, Any]] = {
    "square": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": 2},
    "padded": {"kernel_size": (3, 2), "stride": (1, 2), "padding": 1},
    "partly outside": {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    "spread": {"kernel_size": 2, "stride": 1, "padding": 1, "dilation": 2},
    "large": {"kernel_size": 5, "stride": 1, "padding": 2},
    "large, partly outside": {"kernel_size": (4, 5), "stride": 3, "padding": (2, 1), "ceil_mode": True},
    "large, spread": {"kernel_size": (1, 10), "stride": 2, "padding": (0, 4)},
}
LAYOUTS = {
    "rows": lambda x: x,
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "without a batch": lambda x: x[0],
    "steps": lambda x: x[..., ::2],
}


def calls() -> int:
    """Operators that stayed ATen calls."""
    return sum(isinstance(n, ExternCall) for g in session().compilations[-1].graphs for n in g.loops.nodes)


CASES = [(layout, torch.float32) for layout in LAYOUTS] + [("rows", torch.float64), ("rows", torch.bfloat16)]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("layout", "dtype"), CASES)
def test_values_alone_are_loops(window: str, layout: str, dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 9, 11).to(dtype)
    x[0, 0, :4, :4] = -math.inf
    x[0, 1, 2, 3] = x[0, 1, 3, 3] = x[1, 1, 8, 10] = math.nan
    given = LAYOUTS[layout](x)
    armature.reset()
    found = armature.compile(lambda x: F.max_pool2d(x, **WINDOWS[window]), fullgraph=True)(given)
    expected = F.max_pool2d(given, **WINDOWS[window])
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert found.stride() == expected.stride()
    assert calls() == 0


def test_what_comes_before_and_after_is_fused() -> None:
    armature.reset()
    x = torch.randn(2, 3, 8, 8)
    found = armature.compile(lambda x: F.max_pool2d(x.relu(), 2) * 2, fullgraph=True)(x)
    torch.testing.assert_close(found, F.max_pool2d(x.relu(), 2) * 2)
    [graph] = session().compilations[-1].graphs
    assert len(graph.plan.kernels) == 1


@pytest.mark.parametrize("size", [2, 5, 17])
def test_positions_and_windows_of_many_elements_stay_the_librarys(size: int) -> None:
    def program(x: Tensor) -> Any:
        return F.max_pool2d(x, size, return_indices=size < 10)

    armature.reset()
    x = torch.randn(2, 3, 20, 20)
    torch.testing.assert_close(armature.compile(program, fullgraph=True)(x), program(x))
    assert calls() == 1


VOLUMES: dict[str, dict[str, Any]] = {
    "cubes": {"kernel_size": 2},
    "planes": {"kernel_size": (1, 2, 3), "stride": 2},
    "padded": {"kernel_size": 3, "stride": 2, "padding": 1},
    "partly outside": {"kernel_size": (2, 3, 4), "stride": (2, 3, 3), "padding": (0, 1, 2), "ceil_mode": True},
    "spread": {"kernel_size": 2, "stride": 1, "dilation": (1, 2, 3)},
}


@pytest.mark.parametrize("window", VOLUMES.values(), ids=VOLUMES)
@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels last"])
def test_volumes(window: dict[str, Any], last: bool) -> None:
    x = torch.randn(2, 3, 5, 9, 11)
    x[0, 0, 1, :4, :4], x[0, 1, 2, 3, 3] = -math.inf, math.nan
    check(lambda x: F.max_pool3d(x, **window), x.to(memory_format=torch.channels_last_3d) if last else x)
    assert calls() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [1, (3, 4), (9, 4), (5, 2), (12, 15), (None, 5)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_parts_of_an_image(layout: str, size: Any, dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 9, 11).to(dtype)
    x[0, 0, :4, :4], x[1, 1, 8, 10] = -math.inf, math.nan
    check(lambda x: F.adaptive_max_pool2d(x, size), LAYOUTS[layout](x))
    assert calls() == 0


def test_parts_of_rows_and_volumes() -> None:
    check(lambda x: F.adaptive_max_pool1d(x, 4), torch.randn(2, 3, 11))
    check(lambda x: F.adaptive_max_pool3d(x, (2, 3, 4)), torch.randn(2, 3, 5, 9, 11))
    assert calls() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_positions_in_parts_of_an_image(kit: Kit, dtype: torch.dtype) -> None:
    x = torch.randint(-3, 3, (2, 3, 9, 12)).to(dtype)
    x.view(-1)[::17] = torch.nan
    kit.check(torch.ops.aten.adaptive_max_pool2d.default, x, [3, 5])
    kit.check(torch.ops.aten.adaptive_max_pool2d.default, x[0], [9, 4])
    kit.check(torch.ops.aten.adaptive_max_pool2d.default, torch.full((1, 4, 4), -torch.inf, dtype=dtype), [2, 3])
    kit.check(torch.ops.aten.adaptive_max_pool3d.default, x, [2, 4, 5])
    last = x.contiguous(memory_format=torch.channels_last)
    kit.check(torch.ops.aten.adaptive_max_pool2d.default, last, [3, 5])


def test_positions_and_wide_parts_stay_the_librarys() -> None:
    x = torch.randn(2, 3, 20, 31)
    check(lambda x: F.adaptive_max_pool2d(x, 3), x)
    assert calls() == 1
    armature.reset()
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    armature.compile(lambda x: F.adaptive_max_pool2d(x, 7), fullgraph=True)(ours).square().sum().backward()
    F.adaptive_max_pool2d(theirs, 7).square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def check(program: Program, x: Tensor) -> None:
    """The result is eager's, and so is its layout."""
    armature.reset()
    found, expected = armature.compile(program, fullgraph=True)(x), program(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert found.stride() == expected.stride()


def test_sizes_that_change() -> None:
    armature.reset()
    compiled = armature.compile(lambda x: F.max_pool2d(x, 3, 2, 1), fullgraph=True, dynamic=True)
    for size in (8, 11):
        x = torch.randn(2, 3, size, size + 2)
        torch.testing.assert_close(compiled(x), F.max_pool2d(x, 3, 2, 1))
    armature.reset()
    compiled = armature.compile(lambda x: F.max_pool2d(x, 5, 2, 2), fullgraph=True, dynamic=True)
    for size in (8, 11):
        x = torch.randn(2, 3, size, size + 2)
        torch.testing.assert_close(compiled(x), F.max_pool2d(x, 5, 2, 2))


GRADIENTS: dict[str, tuple[Any, ...]] = {  # kernel, stride, padding, dilation, ceil_mode
    "square": ([2, 2], [2, 2], [0, 0], [1, 1], False),
    "one number each": ([3], [], [1], [1], False),
    "overlapping": ([3, 2], [2, 1], [1, 1], [1, 1], False),
    "partly outside": ([3, 3], [2, 2], [1, 0], [1, 1], True),
    "spread": ([2, 2], [2, 1], [1, 1], [2, 2], False),
    "far apart": ([2, 2], [4, 3], [0, 0], [1, 1], False),
}


@pytest.mark.parametrize("window", GRADIENTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_gradients_by_positions(kit: Kit, on_gpu: Callable[..., Any], window: str, dtype: torch.dtype) -> None:
    op, options = aten.max_pool2d_with_indices_backward.default, GRADIENTS[window]
    for shape in ((2, 3, 9, 11), (3, 9, 11)):
        x = torch.randn(shape).to(dtype)
        out, places = aten.max_pool2d_with_indices(x, *options)
        grad = torch.randn(out.shape).to(dtype)
        expected = op(grad.double(), x.double(), *options, places).to(dtype)  # the kernel rounds each sum
        for found in on_gpu(op, grad, x, *options, places):
            torch.testing.assert_close(found, expected)
        if len(shape) == 4:
            last = [one.to(memory_format=torch.channels_last) for one in (grad, x, places)]
            kit.check(op, *last[:2], *options, last[2])


def test_gradients_of_volumes_by_positions(kit: Kit, on_gpu: Callable[..., Any]) -> None:
    x = torch.randn(2, 3, 5, 6, 7)
    options = ([2, 3, 2], [2, 2, 1], [1, 1, 0], [1, 1, 2], True)
    out, places = aten.max_pool3d_with_indices(x, *options)
    op, grad = aten.max_pool3d_with_indices_backward.default, torch.randn_like(out)
    (found,) = on_gpu(op, grad, x, *options, places)
    torch.testing.assert_close(found, op(grad, x, *options, places))


def test_gradients_of_images_whose_sizes_change() -> None:
    program = armature.compile(lambda x: F.max_pool2d(x, 5, 3, 1), dynamic=True, fullgraph=True)
    for size in (9, 14):
        x, y = (
            torch.randn(2, 3, size, 10, generator=torch.Generator().manual_seed(size))
            .to(memory_format=torch.channels_last).requires_grad_()
            for _ in range(2)
        )  # fmt: skip
        program(x).square().sum().backward()
        F.max_pool2d(y, 5, 3, 1).square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
