"""Average pooling of any number of axes, and its gradients."""

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
WINDOWS: dict[str, tuple[Any, ...]] = {  # kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
    "touching": ([2, 2], [], [0, 0], False, True, None),
    "of a rest": ([4, 3], [], [0, 0], False, True, None),
    "one number": ([3], [2], [1], False, True, None),
    "a divisor": ([3, 3], [2, 2], [1, 1], False, False, 5),
    "overlapping": ([3, 2], [1, 1], [1, 0], False, True, None),
    "apart": ([2, 2], [3, 4], [0, 0], False, True, None),
    "without the padding": ([3, 3], [1, 2], [1, 1], False, False, None),
    "partly outside": ([4, 4], [4, 3], [0, 0], True, True, None),
    "partly outside the padding": ([3, 3], [2, 2], [1, 1], True, True, None),
    "partly outside, without the padding": ([3, 3], [2, 2], [1, 1], True, False, None),
    "large": ([5, 6], [2, 1], [2, 3], False, False, None),
}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda x: x,
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "without a batch": lambda x: x[0],
    "steps": lambda x: x[..., ::2],
}
CASES = [(layout, torch.float32) for layout in LAYOUTS] + [("rows", torch.float64), ("rows", torch.bfloat16)]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("layout", "dtype"), CASES)
def test_images(kit: Kit, window: str, layout: str, dtype: torch.dtype) -> None:
    x = LAYOUTS[layout](torch.randn(2, 3, 10, 26).to(dtype))
    kit.check(aten.avg_pool2d.default, x, *WINDOWS[window])
    grad = torch.randn_like(aten.avg_pool2d.default(x, *WINDOWS[window]))
    kernel, stride, padding, *more = WINDOWS[window]
    padding, stride = padding * (3 - len(padding)), stride * (3 - len(stride)) or stride
    kit.check(aten.avg_pool2d_backward.default, grad, x, kernel, stride, padding, *more, extern=True)


@pytest.mark.parametrize("window", WINDOWS)
def test_volumes(kit: Kit, window: str) -> None:
    kernel, stride, padding, *more = WINDOWS[window]
    lists = [one if len(one) < 2 else [2, *one] if one is kernel else [0 if one is padding else 1, *one]
             for one in (kernel, stride, padding)]  # fmt: skip
    x = torch.randn(2, 3, 5, 10, 13)
    kit.check(aten.avg_pool3d.default, x, *lists, *more)
    grad = torch.randn_like(aten.avg_pool3d.default(x, *lists, *more))
    kit.check(aten.avg_pool3d_backward.default, grad, x, *lists, *more, extern=True)
    x, grad = (one.to(memory_format=torch.channels_last_3d) for one in (x, grad))
    kit.check(aten.avg_pool3d_backward.default, grad, x, *lists, *more)


def test_windows_that_divide_an_image(kit: Kit) -> None:
    x = torch.randn(2, 3, 8, 12)
    kit.check(aten._adaptive_avg_pool2d.default, x, [4, 3])
    kit.check(aten._adaptive_avg_pool2d_backward.default, torch.randn(2, 3, 4, 3), x)
    x = torch.randn(2, 3, 4, 8, 12)
    kit.check(aten._adaptive_avg_pool3d.default, x, [1, 4, 3])
    kit.check(aten._adaptive_avg_pool3d_backward.default, torch.randn(2, 3, 1, 4, 3), x, extern=True)


@pytest.mark.parametrize("size", [(3, 5), (7, 12), (8, 5), (11, 20), (5, 1), (1, 7)])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_windows_of_several_sizes(kit: Kit, layout: str, size: tuple[int, int], dtype: torch.dtype) -> None:
    x = LAYOUTS[layout](torch.randn(2, 3, 8, 24)).to(dtype)
    kit.check(aten._adaptive_avg_pool2d.default, x, list(size))
    grad = torch.randn_like(aten._adaptive_avg_pool2d.default(x, list(size)))
    kit.check(aten._adaptive_avg_pool2d_backward.default, grad, x, extern=layout != "channels last")


def test_volumes_of_several_sizes(kit: Kit) -> None:
    x = torch.randn(2, 3, 4, 8, 12)
    for given in (x, x.to(memory_format=torch.channels_last_3d)):
        kit.check(aten._adaptive_avg_pool3d.default, given, [3, 5, 4])
        grad = torch.randn_like(aten._adaptive_avg_pool3d.default(given, [3, 5, 4]))
        kit.check(aten._adaptive_avg_pool3d_backward.default, grad, given, extern=True)


def test_wide_windows_of_several_sizes_stay_the_librarys_in_rows(kit: Kit) -> None:
    x = torch.randn(2, 3, 8, 30)
    assert stays(kit, x) and not stays(kit, x.to(memory_format=torch.channels_last))


def stays(kit: Kit, x: Tensor) -> bool:
    """Whether four columns of windows are made by a call."""
    loops = kit.check(aten._adaptive_avg_pool2d.default, x, [8, 4], extern=True)
    return any(isinstance(node, ExternCall) for node in loops.nodes)


def test_numbers_that_are_not_finite(kit: Kit) -> None:
    """An element that no window holds gets no gradient; NaN stays within its window."""
    x = torch.randn(1, 1, 6, 6)
    x[0, 0, 1, 2], x[0, 0, 4, 4] = math.nan, math.inf
    out = kit.check(aten.avg_pool2d.default, x, [3, 3], [1, 1], [1, 1])
    assert out.nodes
    grad = torch.randn(1, 1, 2, 2)
    grad[0, 0, 1, 1] = math.nan
    kit.check(aten.avg_pool2d_backward.default, grad, x, [2, 2], [3, 3], [0, 0], False, True, None)


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "touching": lambda x: F.avg_pool2d(x, 2),
    "overlapping": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "without the padding": lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "partly outside": lambda x: F.avg_pool2d(x, 4, ceil_mode=True),
    "steps": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "rows": lambda x: F.avg_pool1d(x.flatten(2), 3, 1, 1),
    "volumes": lambda x: F.avg_pool3d(x[None], 2),
    "dividing": lambda x: F.adaptive_avg_pool2d(x, (5, 4)),
    "enlarging": lambda x: F.adaptive_avg_pool2d(x, (12, 15)),
}


def calls() -> int:
    """Operators that stayed ATen calls."""
    return sum(isinstance(n, ExternCall) for g in session().compilations[-1].graphs for n in g.loops.nodes)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels last"])
def test_training(program: str, last: bool) -> None:
    armature.reset()
    fn = PROGRAMS[program]
    given = torch.randn(2, 3, 10, 12)
    given = given.to(memory_format=torch.channels_last) if last else given
    ours, theirs = (given.clone().requires_grad_() for _ in range(2))
    for run, x in ((armature.compile(lambda x: fn(x).sin(), fullgraph=True), ours), (lambda x: fn(x).sin(), theirs)):
        run(x).square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert ours.grad is not None and theirs.grad is not None and ours.grad.stride() == theirs.grad.stride()
    assert calls() == (program == "steps" and not last)


def test_sizes_that_change() -> None:
    armature.reset()

    def program(x: Tensor) -> Tensor:
        x = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        return F.avg_pool2d(x, 3, 2, 1, ceil_mode=True).sin()

    compiled = armature.compile(program, fullgraph=True, dynamic=True)
    for size in (8, 11):
        ours = torch.randn(2, 3, size, size + 2, requires_grad=True)
        theirs = ours.detach().clone().requires_grad_()
        for run, x in ((compiled, ours), (program, theirs)):
            run(x).square().sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
