"""Levels of forward mode that the program enters itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from armature.api import public as api
from armature.testing.handler_kit import break_id


def tangent(x: Tensor) -> Any:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        return forward_ad.unpack_dual(dual.sin() * 2).tangent


def both(x: Tensor) -> Any:
    with forward_ad.dual_level() as level:
        dual = forward_ad.make_dual(x * 2, x.cos(), level=level)
        primal, tangent = forward_ad.unpack_dual(dual @ dual.t())
    return primal + tangent


def none(x: Tensor) -> Any:
    with forward_ad.dual_level():
        unpacked = forward_ad.unpack_dual(x)
    return unpacked.primal + 1, unpacked.tangent is None


def afterwards(x: Tensor) -> Any:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        out = dual * 3
    return out + 1


def raises(x: Tensor) -> Any:
    try:
        with forward_ad.dual_level():
            forward_ad.make_dual(x, torch.ones_like(x))
            raise ValueError("inside")
    except ValueError:
        x = x + 1
    return x * 2


def twice(x: Tensor) -> Any:
    for _ in range(2):
        with forward_ad.dual_level():
            x = x + forward_ad.unpack_dual(forward_ad.make_dual(x, x).exp()).tangent
    return x


def later(x: Tensor) -> Any:
    level = forward_ad.dual_level()
    y = x + 1
    with level:
        return forward_ad.unpack_dual(forward_ad.make_dual(y, x).sin()).tangent


PROGRAMS = (tangent, both, none, afterwards, raises, twice, later)


@pytest.mark.parametrize("options", [{"backend": "eager"}, {"backend": "aot_eager"}, {}], ids=str)
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_one_graph(fn: Callable[[Tensor], Any], options: dict[str, Any]) -> None:
    compiled = api.compile(fn, fullgraph=True, **options)
    for size in (2, 3):
        x = torch.randn(size, size)
        torch.testing.assert_close(compiled(x), fn(x), rtol=1e-5, atol=1e-5)
    assert forward_ad._current_level == -1


def broken(x: Tensor) -> Any:
    y = x + 1
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(y, x)
        api.graph_break("here")
        return forward_ad.unpack_dual(dual.sin()).tangent


def broken_and_later(x: Tensor) -> Any:
    level = forward_ad.dual_level()
    y = x + 1
    with level:
        dual = forward_ad.make_dual(y, x)
        api.graph_break("here")
        return forward_ad.unpack_dual(dual.sin()).tangent


@pytest.mark.parametrize("fn", [broken, broken_and_later])
def test_a_break_inside_keeps_the_level_whole(fn: Callable[[Tensor], Any]) -> None:
    x = torch.randn(3)
    assert torch.equal(api.compile(fn, backend="eager")(x), fn(x))
    assert forward_ad._current_level == -1


def test_gradients() -> None:
    mine, theirs = (torch.linspace(-1, 1, 4).requires_grad_() for _ in range(2))
    api.compile(tangent, backend="eager", fullgraph=True)(mine).sum().backward()
    tangent(theirs).sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("options", [{"backend": "eager"}, {}], ids=str)
@pytest.mark.parametrize("first", [True, False])
def test_called_inside_a_level(first: bool, options: dict[str, Any]) -> None:
    def fn(x: Tensor) -> Any:
        out = x.sin() * 2
        return out, forward_ad.unpack_dual(out).tangent

    compiled, x = api.compile(lambda x: x.sin() * 2, **options), torch.randn(3)
    unpacking = api.compile(fn, **options)
    if first:
        torch.testing.assert_close(compiled(x), x.sin() * 2)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones(3))
        expected = forward_ad.unpack_dual(dual.sin() * 2).tangent
        torch.testing.assert_close(forward_ad.unpack_dual(compiled(dual)).tangent, expected)
        torch.testing.assert_close(unpacking(dual)[1], expected)
    torch.testing.assert_close(compiled(x), x.sin() * 2)


def test_two_levels_are_an_error() -> None:
    def fn(x: Tensor) -> Tensor:
        with forward_ad.dual_level(), forward_ad.dual_level():
            return x + 1

    with pytest.raises(RuntimeError, match=r"[Nn]ested"):
        fn(torch.ones(2))
    with pytest.raises(RuntimeError, match=r"[Nn]ested"):
        api.compile(fn, backend="eager")(torch.ones(2))
    assert forward_ad._current_level == -1


def test_entered_by_hand_breaks() -> None:
    def fn(x: Tensor) -> Tensor:
        level = forward_ad.enter_dual_level()
        x = forward_ad.unpack_dual(forward_ad.make_dual(x, x)).tangent
        forward_ad.exit_dual_level(level=level)
        return x

    assert break_id(fn, (torch.ones(2),)) == "transform-level"
