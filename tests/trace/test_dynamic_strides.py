"""Strides that change from call to call, although no size explains them, become symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import armature
from armature import config
from armature.pipeline.session import session
from tests.support.strides import FUNCTIONS, PARTS, WIDTHS, arithmetic, check, check_gradients, trained, written


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    armature.reset()
    with config.patch(strict=True):
        yield
    armature.reset()


def count() -> int:
    return len(session().compilations)


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_two_graphs_for_all_widths(fn: Callable[..., Any], backend: str) -> None:
    quick = armature.compile(fn, backend=backend, fullgraph=True)
    for width in WIDTHS:
        check(quick, fn, PARTS["columns"], width)
    assert count() == 2


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("part", PARTS)
def test_each_kind_of_part(part: str, backend: str) -> None:
    for fn in (arithmetic, written):
        armature.reset()
        quick = armature.compile(fn, backend=backend, fullgraph=True)
        for width in WIDTHS:
            check(quick, fn, PARTS[part], width)
        assert count() == 2


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("part", ["columns", "transposed", "diagonal", "both"])
def test_gradients(part: str, backend: str) -> None:
    quick = armature.compile(trained, backend=backend, fullgraph=True)
    for width in WIDTHS:
        check_gradients(quick, trained, PARTS[part], width)
    assert count() == 2


def scaled(x: Tensor) -> Tensor:
    return x * 2 + x.sum(1, keepdim=True)


def compiled(fn: Callable[..., Any] = scaled, **options: Any) -> Callable[..., Any]:
    return armature.compile(fn, backend="eager", fullgraph=True, **options)


def test_sizes_and_strides_change_together() -> None:
    quick = compiled()
    for width in (*WIDTHS, 19):
        check(quick, scaled, lambda n: torch.randn(n // 3, n)[:, : n // 2], width)
    assert count() == 2


def test_slices_of_varying_width_after_a_dense_tensor() -> None:
    quick = compiled()
    check(quick, scaled, lambda n: torch.randn(8, n), WIDTHS[0])
    for width in (*WIDTHS, 19, 23):
        check(quick, scaled, lambda n: torch.randn(8, 64)[:, :n], width)
    assert count() <= 3


def test_numbers_of_axes_that_alternate() -> None:
    """Each has two compilations of its own, one of them for all sizes and strides."""

    def total(x: Tensor) -> Tensor:
        return (x * 2).sum(-1)

    quick = compiled(total)
    for width in (*WIDTHS, 19, 23, 29):
        check(quick, total, torch.randn, width)
        check(quick, total, lambda n: torch.randn(n + 2, 3), width)
        check(quick, total, lambda n: torch.randn(3, 4, n)[..., :3], width)
    assert count() == 6


def test_a_stride_that_follows_from_sizes_is_no_symbol() -> None:
    def read(x: Tensor) -> Tensor:
        return x + x.stride(0)

    quick = compiled(read)
    for width in WIDTHS:
        check(quick, read, lambda n: torch.randn(3, n), width)
    assert count() == 2
    assert all("x.stride(0) >= 2" not in str(guard) for one in session().compilations for guard in one.guards)


def test_a_multiple_of_a_size() -> None:
    """`x[::2]` of contiguous rows: the stride is twice the width."""
    quick = compiled()
    for width in WIDTHS:
        check(quick, scaled, lambda n: torch.randn(8, n)[::2], width)
    assert count() == 2


@pytest.mark.parametrize("dynamic", [True, None])
def test_dense_tensors_and_transposed_ones_have_code_of_their_own(dynamic: bool | None) -> None:
    quick = compiled(dynamic=dynamic)
    for _ in range(2):
        for part in (lambda n: torch.randn(4, 6), lambda n: torch.randn(6, 4).t()):
            check(quick, scaled, part, 6)
    assert count() == 2


def test_0_and_1_are_their_own() -> None:
    quick = compiled()
    parts: tuple[Callable[[int], Tensor], ...] = (
        lambda n: torch.randn(4, n)[:, :6],
        lambda n: torch.randn(n)[:6].expand(4, 6),
        lambda n: torch.randn(4, n + 1)[:, :6],
        lambda n: torch.randn(n)[:6].expand(4, 6),
        lambda n: torch.randn(n * 20).as_strided((4, 6), (1, n)),
        lambda n: torch.randn(4, n + 5)[:, :6],
    )
    for part in parts:
        check(quick, scaled, part, 12)
    assert count() == 4  # of columns one, then any; of an expanded tensor; of a diagonal one


def test_not_with_dynamic_false_and_only_after_a_change_with_true() -> None:
    static = compiled(dynamic=False)
    for width in WIDTHS:
        check(static, scaled, PARTS["columns"], width)
    assert count() == len(WIDTHS)
    armature.reset()
    dynamic = compiled(dynamic=True)
    for width in WIDTHS:
        check(dynamic, scaled, lambda n: torch.randn(n // 3, n)[:, : n // 2], width)
    assert count() == 2


def test_marks_are_about_sizes() -> None:
    quick = compiled()
    for rows, width in ((4, 12), (5, 12), (7, 20), (3, 31), (9, 44)):
        x = torch.randn(rows, width)[:, :6]
        armature.mark_dynamic(x, 0)
        torch.testing.assert_close(quick(x), scaled(x))
    assert count() == 2
    armature.reset()
    quick = compiled()
    for width in WIDTHS:
        x = torch.randn(4, width)[:, :6]
        armature.mark_static(x)
        torch.testing.assert_close(quick(x), scaled(x))
    assert count() == len(WIDTHS)


def test_what_the_graph_asks_of_a_stride_is_guarded() -> None:
    def asks(x: Tensor) -> Tensor:
        return x + 1 if x.stride(0) < 20 else x - 1

    quick = compiled(asks)
    for width in (12, 15, 17, 40, 50, 13, 60):
        check(quick, asks, PARTS["columns"], width)
    assert count() == 3  # one number, below 20, and above


@pytest.mark.parametrize("start", [6, 3])  # beside the first part, and overlapping it
def test_two_parts_of_one_buffer(start: int) -> None:
    def both(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        return x + y

    for backend in ("eager", "auto"):
        armature.reset()
        quick = armature.compile(both, backend=backend, fullgraph=True)
        for width in WIDTHS:
            mine = torch.arange(4.0 * width).view(4, width)
            theirs = mine.clone()
            found, expected = (
                quick(mine[:, :6], mine[:, start : start + 6]),
                both(theirs[:, :6], theirs[:, start : start + 6]),
            )
            torch.testing.assert_close((found, mine), (expected, theirs))
        assert count() == 2


def test_a_graph_break_and_what_follows_it() -> None:
    def broken(x: Tensor) -> Tensor:
        y = x * 2
        armature.graph_break()
        return x + y[:, :2].sum() + x.stride(0)

    for backend in ("eager", "auto"):
        armature.reset()
        quick = armature.compile(broken, backend=backend)
        for width in WIDTHS:
            check(quick, broken, PARTS["columns"], width)
        assert count() == 4


def test_convolutions_of_parts() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    quick = armature.compile(model, fullgraph=True)
    for width in WIDTHS:
        image = torch.randn(2, 5, 8, width)[:, :3, :, :6]
        torch.testing.assert_close(quick(image), model(image), rtol=1e-4, atol=1e-4)
    assert count() == 2


def test_attention_of_parts() -> None:
    def attention(q: Tensor, k: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, k)

    quick = armature.compile(attention, fullgraph=True)
    for width in WIDTHS:
        cache = torch.randn(2, 3, width, 8)
        torch.testing.assert_close(
            quick(cache[:, :, :5], cache[:, :, 4:11]), attention(cache[:, :, :5], cache[:, :, 4:11])
        )
    assert count() == 2


def test_results_that_may_overlap_in_their_memory() -> None:
    """The gradient of a result that is a part does not have the part's layout, in which its elements may overlap."""

    def windows(x: Tensor) -> tuple[Tensor, Tensor]:
        return x[1:], x.sin()

    quick = armature.compile(windows, fullgraph=True)
    for step in (7, 8, 3, 5):
        gradients = []
        for run in (quick, windows):
            x = torch.arange(40.0).as_strided((4, 6), (step, 1)).requires_grad_()
            found = run(x)
            torch.autograd.backward(found, [torch.arange(18.0).view(3, 6), torch.ones(4, 6)])
            gradients.append((found, x.grad))
        torch.testing.assert_close(*gradients)


def test_bytes_of_a_part() -> None:
    def size(x: Tensor) -> tuple[Tensor, int, int]:
        return x + 1, x.nbytes, x.numel()

    quick = compiled(size)
    for width in WIDTHS:
        check(quick, size, PARTS["columns"], width)
    assert count() == 2
    for width in WIDTHS:
        check(quick, size, lambda n: torch.randn(n, 3, 2), width)
    assert count() == 4


def test_a_number_that_no_input_of_a_piece_gives() -> None:
    """Within `x[:, 0]`, only the product of the second size and the width is a stride."""

    def chosen(x: Tensor) -> Tensor:
        y = x[:, 0]
        return torch.cond(y.sum() > 0, lambda t: t * 2, lambda t: t - 1, (y,)) + y

    with config.patch(strict=False), pytest.warns(armature.ArmatureWarning, match="no input gives the number"):
        quick = armature.compile(chosen)
        for width in WIDTHS:
            check(quick, chosen, lambda n: torch.randn(4, n, n + 1)[:, :, :6], width)
