"""Modes of torch that a call changes, not `with`: they hold after a graph break and after the frame, as in eager mode."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import armature
from tests.support.resuming import Resumed, compare, compiled, run


@pytest.fixture(autouse=True)
def modes_of_torch() -> Iterator[None]:
    yield
    as_they_were()


def as_they_were() -> None:
    torch.set_grad_enabled(True)
    torch.set_autocast_enabled("cpu", False)


def modes() -> tuple[object, ...]:
    return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled()


def leaf() -> tuple[torch.Tensor]:
    return (torch.linspace(-1.0, 1.0, 6).reshape(2, 3).requires_grad_(),)


def checked(fn: Callable[..., Any], backend: Any = None) -> Resumed:
    """Run it twice, compiled and not: results, what was printed and the modes that it leaves must agree."""
    mine, records = compiled(fn, backend)
    for _ in range(2):
        theirs, left = run(fn, fn.__code__.co_filename, leaf()), modes()
        as_they_were()
        ours, found = run(mine, fn.__code__.co_filename, leaf()), modes()
        as_they_were()
        compare(theirs, ours)
        assert found == left
    return Resumed(tuple(records.compilations))


def state(t):
    print(*modes(), t.requires_grad, t.dtype)


@armature.disable
def turn(t):
    torch._C._set_grad_enabled(not torch.is_grad_enabled())
    state(t)


# One break each, as under torch.compile.


def off(t):
    a = t * 2
    torch.set_grad_enabled(False)
    b = t * 3
    state(b)
    return a, b, t * 4


def off_and_on(t):
    torch._C._set_grad_enabled(False)
    a = t * 3
    state(a)
    b = t * 4
    torch._C._set_grad_enabled(True)
    return a, b, t * 5


def off_in_a_block(t):
    with torch.enable_grad():
        torch._C._set_grad_enabled(False)
        a = t * 3
        state(a)
        b = t * 4
    return a, b, t * 5


def before_anything(t):
    torch._C._set_grad_enabled(False)
    state(t)
    a = t * 2
    torch._C._set_grad_enabled(True)
    return a


def entered_by_hand(t):
    mode = torch.no_grad()
    mode.__enter__()
    a = t * 2
    state(a)
    b = t * 3
    mode.__exit__(None, None, None)
    return a, b, t * 4


def in_finally(t):
    try:
        torch.set_grad_enabled(False)
        a = t * 2
        state(a)
        b = t * 3
    finally:
        torch.set_grad_enabled(True)
    return a, b, t * 4


def raises(t):
    torch.set_grad_enabled(False)
    a = t * 2
    state(a)
    raise ValueError("with gradients off")


@torch.no_grad()
def decorated(t):
    a = t * 2
    torch._C._set_grad_enabled(True)
    state(a)
    return t * 3


CONTEXT = torch.no_grad()


def a_global_by_hand(t):
    CONTEXT.__enter__()
    a = t * 2
    state(a)
    b = t * 2
    CONTEXT.__exit__(None, None, None)
    return a, b, CONTEXT.prev, t * 2


ONE_BREAK = [
    off, off_and_on, off_in_a_block, before_anything, entered_by_hand, in_finally, raises, decorated, a_global_by_hand,
]  # fmt: skip


@pytest.mark.parametrize("backend", [None, "auto"])
@pytest.mark.parametrize("program", ONE_BREAK)
def test_a_mode_lasts_beyond_a_break(program: Callable[..., Any], backend: Any) -> None:
    found = checked(program, backend)
    assert found.breaks == ["prints"]
    assert not found.eager


# More of them.


def block_inside_off(t):
    torch._C._set_grad_enabled(False)
    with torch.enable_grad():
        a = t * 3
        state(a)
        b = t * 4
    c = t * 5
    state(c)
    torch._C._set_grad_enabled(True)
    return a, b, c


def turned_by_the_instruction(t):
    with torch.no_grad():
        a = t * 2
        turn(t)
        b = t * 3
        state(b)
        c = t * 5
    return a, b, c, t * 4


def of_the_caller(t):
    turn(t)
    a = t * 2
    state(a)
    turn(t)
    return a, t * 2


def inner(t):
    torch._C._set_grad_enabled(False)
    a = t * 2
    state(a)
    return t * 3


def calls(t):
    a = t * 2
    b = inner(a)
    c = t * 4
    state(c)
    torch._C._set_grad_enabled(True)
    return a, b, c


def inside_calls(t):
    with torch.no_grad():
        torch._C._set_grad_enabled(True)
        with torch.autocast("cpu", torch.bfloat16):
            a = t @ t.t()
            torch._C._set_grad_enabled(False)
            with torch.enable_grad():
                b = t * 2
                state(b)
                torch._C._set_grad_enabled(False)
                c = inner(t)
                state(c)
            d = t * 2
            state(d)
        e = t * 2
        state(e)
    return a, b, c, d, e, t * 2


def used_as_both(t):
    mode = torch.set_grad_enabled(False)
    a = t * 2
    mode.__exit__(None, None, None)
    state(a)
    mode.__exit__(None, None, None)
    with mode:
        b = t * 3
        state(b)
    with mode:
        c = t * 2
    return a, b, c, torch.is_grad_enabled(), mode.prev, mode.mode


def in_a_loop(t):
    found = []
    for i in range(4):
        torch.set_grad_enabled(i % 2 == 0)
        found.append(t * i)
        state(found[-1])
    torch.set_grad_enabled(True)
    return found


def inference_by_hand(t):
    mode = torch.inference_mode()
    mode.__enter__()
    a = t * 2
    state(a)
    b = t * 3
    mode.__exit__(None, None, None)
    return a, b, a.is_inference(), t * 4


def autocast_by_hand(t):
    mode = torch.autocast("cpu", torch.bfloat16)
    mode.__enter__()
    a = t @ t.t()
    state(a)
    b = t @ t.t()
    mode.__exit__(None, None, None)
    return a, b, t @ t.t()


def on_a_stack(t):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast("cpu", torch.bfloat16))
        a = t @ t.t()
        state(a)
        b = t @ t.t()
    return a, b, t @ t.t()


def left_open(t):
    mode = torch.autocast("cpu", torch.bfloat16)
    mode.__enter__()
    return t @ t.t(), mode


def closes_what_was_left(t):
    a, mode = left_open(t)
    state(a)
    mode.__exit__(None, None, None)
    return a, t @ t.t()


def never_entered(t):
    mode = torch.no_grad()
    a = t * 2
    mode.__exit__(None, None, None)
    state(a)
    torch.enable_grad().__exit__(None, None, None)
    return a


MORE = [
    block_inside_off, turned_by_the_instruction, of_the_caller, calls, inside_calls, used_as_both, in_a_loop,
    inference_by_hand, autocast_by_hand, on_a_stack, left_open, closes_what_was_left, never_entered,
]  # fmt: skip


@pytest.mark.parametrize("backend", [None, "auto"])
@pytest.mark.parametrize("program", MORE)
def test_modes_are_those_of_eager_mode(program: Callable[..., Any], backend: Any) -> None:
    found = checked(program, backend)
    assert found.graphs
    assert not found.eager


def left_off(t):
    a = t * 2
    torch.set_grad_enabled(False)
    return a, t * 3


def gradients_inside(t):
    with torch.enable_grad():
        a = t * 2
        with torch.no_grad():
            b = a * 3
    return a, b, t * 4


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_the_mode_that_a_frame_leaves(backend: str) -> None:
    mine = armature.compile(left_off, backend=backend, fullgraph=True)
    for _ in range(2):
        first, second = mine(*leaf())
        assert (first.requires_grad, second.requires_grad, torch.is_grad_enabled()) == (True, False, False)
        as_they_were()


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_gradients_in_a_part_of_what_is_called_without(backend: str) -> None:
    """The graph of `auto` recorded none: it was compiled by the mode in which it is called."""
    mine = armature.compile(gradients_inside, backend=backend, fullgraph=True)
    for _ in range(2):
        (x,), (y,) = leaf(), leaf()
        with torch.no_grad():
            found, expected = mine(x), gradients_inside(y)
        assert [t.requires_grad for t in found] == [t.requires_grad for t in expected] == [True, False, False]
        for one, other in zip(found, expected):
            torch.testing.assert_close(one, other)
        found[0].sum().backward()
        expected[0].sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
