"""Pooling: maxima in loops where nobody reads positions, and gradients of averages."""

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

WINDOWS: dict[str, dict[str, Any]] = {
    "square": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": 2},
    "padded": {"kernel_size": (3, 2), "stride": (1, 2), "padding": 1},
    "partly outside": {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    "spread": {"kernel_size": 2, "stride": 1, "padding": 1, "dilation": 2},
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


@pytest.mark.parametrize("size", [2, 5])
def test_positions_and_large_windows_stay_the_librarys(size: int) -> None:
    def program(x: Tensor) -> Any:
        return F.max_pool2d(x, size, return_indices=size == 2)

    armature.reset()
    x = torch.randn(2, 3, 10, 10)
    torch.testing.assert_close(armature.compile(program, fullgraph=True)(x), program(x))
    assert calls() == 1


def test_sizes_that_change() -> None:
    armature.reset()
    compiled = armature.compile(lambda x: F.max_pool2d(x, 3, 2, 1), fullgraph=True, dynamic=True)
    for size in (8, 11):
        x = torch.randn(2, 3, size, size + 2)
        torch.testing.assert_close(compiled(x), F.max_pool2d(x, 3, 2, 1))


GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "averages": lambda x: F.avg_pool2d(x, 2),
    "averages with a rest": lambda x: F.avg_pool2d(x, (4, 3)),
    "averages by a divisor": lambda x: F.avg_pool2d(x, 3, divisor_override=5),
    "enlarged": lambda x: F.interpolate(x, scale_factor=2),
    "enlarged along one axis": lambda x: F.interpolate(x, size=(30, 12)),
}
OVERLAPPING: dict[str, Callable[[Tensor], Tensor]] = {
    "overlapping averages": lambda x: F.avg_pool2d(x, 3, stride=2, padding=1),
    "partly outside": lambda x: F.avg_pool2d(x, 4, ceil_mode=True),
    "enlarged by a fraction": lambda x: F.interpolate(x, scale_factor=1.5),
}


@pytest.mark.parametrize(
    ("program", "layout"),
    [  # F.interpolate takes a batch
        (program, layout)
        for program in GRADIENTS | OVERLAPPING
        for layout in LAYOUTS
        if not (program.startswith("enlarged") and layout == "without a batch")
    ],
)
def test_gradients_of_averages_and_of_enlarged_images(program: str, layout: str) -> None:
    armature.reset()
    fn = {**GRADIENTS, **OVERLAPPING}[program]
    given = LAYOUTS[layout](torch.randn(2, 3, 10, 12))
    found, expected = (given.clone().requires_grad_() for _ in range(2))
    for run, x in ((armature.compile(lambda x: fn(x).sin(), fullgraph=True), found), (lambda x: fn(x).sin(), expected)):
        run(x).square().sum().backward()
    torch.testing.assert_close(found.grad, expected.grad)
    assert found.grad is not None and expected.grad is not None and found.grad.stride() == expected.grad.stride()
    assert program in OVERLAPPING or calls() == 0


def test_gradients_of_the_enlarging_operator(kit: Kit) -> None:
    """Programs reach it by name only: torch decomposes `interpolate` where gradients are recorded."""
    backward = torch.ops.aten.upsample_nearest2d_backward.default
    for size in ([10, 8], [15, 4]):
        kit.check(backward, torch.randn(2, 3, *size), size, [2, 3, 5, 4])
