"""Breaks inside `with` and `try`: contexts are left and entered again, exceptions find their handlers."""

from __future__ import annotations

import contextlib
import sys
import traceback
from typing import Any

import pytest
import torch

import armature
from tests.support.resuming import compiled, resumes


def x() -> torch.Tensor:
    return torch.linspace(-1.0, 1.0, 6).reshape(2, 3)


def one() -> tuple[torch.Tensor]:
    return (x(),)


def leaf() -> tuple[torch.Tensor]:
    return (x().requires_grad_(),)


def state(t):
    print(torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), t.requires_grad)


# `with`.


def no_grad(t):
    a = t * 2
    with torch.no_grad():
        b = a * 3
        state(b)
        c = b + 1
    d = a * 2
    return a, b, c, d, torch.is_grad_enabled()


def twice_in_no_grad(t):
    with torch.no_grad():
        t = t + 1
        state(t)
        t = t * 2
        state(t)
        t = t - 1
    state(t)
    return t * 2


def nested_modes(t):
    with torch.no_grad():
        a = t * 2
        with torch.enable_grad():
            b = t * 3
            state(b)
            c = b * 2
        state(a)
        d = t * 4
    return a, b, c, d


def set_mode(t):
    with torch.set_grad_enabled(False):
        a = t * 2
        state(a)
        b = t * 3
    return a, b, t * 4


def autocast(t):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = t @ t.t()
        state(a)
        b = t @ t.t()
    return a, b, t @ t.t()


def raises_in_no_grad(t):
    a = t * 2
    with torch.no_grad():
        b = a + 1
        state(b)
        if b.sum() > -1000:
            raise ValueError("inside")
        b = b + 1
    return b


def returns_in_no_grad(t):
    with torch.no_grad():
        b = t + 1
        state(b)
        return b * 2


def loop_in_no_grad(t):
    with torch.no_grad():
        for i in range(3):
            t = t + i
            state(t)
            t = t * 2
    return t * 2


def no_grad_in_a_loop(t):
    for i in range(3):
        with torch.no_grad():
            a = t + i
            state(a)
        t = t * 2 + a
    return t


def helper_in_no_grad(t):
    def helper(v):
        w = v * 2
        state(w)
        return w * v

    with torch.no_grad():
        a = helper(t)
    return a, t * 2, helper(t)


class Manager:
    def __init__(self, swallows=False):
        self.swallows = swallows
        self.log = []

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, tb):
        self.log.append(kind.__name__ if kind else "exit")
        return self.swallows


def user_manager(t, manager):
    with manager as held:
        a = t + 1
        print(len(held.log))
        b = a * 2
    return b + len(manager.log)


def manager_that_prints(t):
    class Loud:
        def __enter__(self):
            print("in")
            return 3

        def __exit__(self, *args):
            print("out", args[0])

    with Loud() as n:
        t = t * n
    return t + 1


def manager_sees_the_error(t, manager):
    with manager:
        manager.log.append((t + 1).shape)
        print("raising")
        raise KeyError("k")
    return t * 2


def manager_made_inside(t):
    with Manager(swallows=True) as held:
        t = t + 1
        print(held.log)
        t = t * 2
        t.no_such_thing
        t = t * 100
    return t, held


@contextlib.contextmanager
def managed(log):
    log.append("in")
    try:
        yield len(log)
    finally:
        log.append("out")


def generator_manager(t, log):
    with managed(log) as n:
        t = t + n
        print(log)
        t = t * 2
    return t * len(log)


def generator_manager_and_error(t, log):
    try:
        with managed(log):
            t = t + 1
            print(log)
            raise ValueError(3)
    except ValueError as error:
        t = t * error.args[0]
    return t * len(log)


def exit_stack(t, manager):
    with contextlib.ExitStack() as stack:
        stack.enter_context(manager)
        t = t + 1
        print(len(manager.log))
        t = t * 2
    return t


def two_managers(t, manager):
    with manager, torch.no_grad(), Manager() as other:
        a = t + 1
        state(a)
        b = a * 2
    return b + len(other.log), t * 2


WITH: list[tuple[Any, Any]] = [
    (no_grad, leaf),
    (twice_in_no_grad, leaf),
    (nested_modes, leaf),
    (set_mode, leaf),
    (autocast, one),
    (raises_in_no_grad, leaf),
    (returns_in_no_grad, leaf),
    (loop_in_no_grad, leaf),
    (no_grad_in_a_loop, leaf),
    (helper_in_no_grad, leaf),
    (user_manager, lambda: (x(), Manager())),
    (manager_that_prints, one),
    (manager_sees_the_error, lambda: (x(), Manager(swallows=True))),
    (manager_sees_the_error, lambda: (x(), Manager())),
    (manager_made_inside, one),
    (generator_manager, lambda: (x(), [])),
    (generator_manager_and_error, lambda: (x(), [])),
    (exit_stack, lambda: (x(), Manager())),
    (two_managers, lambda: (x().requires_grad_(), Manager())),
]


@pytest.mark.parametrize(("fn", "make"), WITH, ids=lambda p: getattr(p, "__name__", ""))
def test_with(fn: Any, make: Any) -> None:
    found = resumes(fn, make, calls=3)
    assert found.eager == []
    assert found.compilations <= 16


def test_no_grad_is_entered_again() -> None:
    found = resumes(no_grad, leaf)
    assert (len(found.graphs), len(found.breaks)) == (2, 1)
    assert "mul" in found.graphs[0] and "add" in found.graphs[1]


@pytest.mark.parametrize("fn", [no_grad, nested_modes, helper_in_no_grad, two_managers], ids=lambda fn: fn.__name__)
def test_gradients_are_as_in_eager(fn: Any) -> None:
    def total(fn: Any) -> torch.Tensor:
        t = x().requires_grad_()
        found = fn(t, Manager()) if fn.__code__.co_argcount == 2 or fn is two else fn(t)
        parts = [part for part in found if isinstance(part, torch.Tensor) and part.requires_grad]
        sum(part.sum() for part in parts).backward()
        return t.grad, [part.requires_grad for part in found if isinstance(part, torch.Tensor)]

    two = compiled(fn, "auto")[0] if fn is two_managers else None
    mine = two or compiled(fn, "auto")[0]
    ours, theirs = total(mine), total(fn)
    assert ours[1] == theirs[1]
    torch.testing.assert_close(ours[0], theirs[0])


# The traceback that `__exit__` gets.


class Sees:
    def __init__(self):
        self.log = []

    def __enter__(self):
        return self

    def __exit__(self, kind, error, tb):
        self.log.append((kind, str(error), type(tb), error.__traceback__ is tb))
        self.log.append([f.name for f in traceback.extract_tb(tb)])
        self.log.append((tb.tb_lineno > 0, tb.tb_frame.f_code.co_name))
        return True


def with_tb(t):
    s = Sees()
    with s:
        t = t * 2
        raise ValueError("x")
    return t + 1, s.log


def with_tb_break(t):
    s = Sees()
    with s:
        t = t * 2
        print("in")
        raise ValueError("x")
    return t + 1, s.log


def with_helper_raises(t):
    s = Sees()

    def deep(n):
        if n == 0:
            raise KeyError("deep")
        return deep(n - 1)

    with s:
        t = t * 2
        deep(2)
    return t + 1, s.log


@pytest.mark.parametrize("fn", [with_tb, with_tb_break, with_helper_raises])
def test_exit_gets_a_traceback(fn: Any) -> None:
    assert not resumes(fn, one).eager


# `try`.


def catches(t, items):
    a = t + 1
    try:
        a = a + items["missing"]
        print("never")
    except KeyError as error:
        print("caught", error.args, type(error).__name__)
        a = a * 2
    return a + 1


def catches_what_a_call_raises(t):
    a = t + 1
    try:
        a = a + int("no number")
    except ValueError as error:
        print(str(error))
        a = a * 3
    else:
        a = a * 5
    finally:
        a = a - 1
    return a


def raises_untraced(t):
    a = t + 1
    try:
        opens("/no/such/file")
        a = a * 100
    except FileNotFoundError as error:
        a = a * error.errno
    return a + 1


@armature.disable
def opens(path):
    with open(path) as file:
        return file.read()


def prints_in_try(t):
    try:
        a = t + 1
        print("in try")
        a = a * 2
    finally:
        t = t + 10
        print("finally")
    return a + t


def prints_in_a_handler(t):
    a = t + 1
    try:
        raise ValueError("a", 1)
    except ValueError as error:
        a = a * len(error.args)
        print("handling", error, sys.exc_info()[0].__name__)
        a = a + 1
    print("after", sys.exc_info())
    return a * 2


def shows_the_traceback(t):
    a = t + 1
    try:
        raise ValueError("shown")
    except ValueError:
        print(traceback.format_exc().count("shows_the_traceback"))
        a = a * 2
    return a


def reraises(t):
    a = t + 1
    try:
        a = a + opens("/no/such/file")
    except FileNotFoundError:
        a = a * 2
        print("again")
        raise
    return a


def raises_from(t):
    a = t + 1
    try:
        a = a + opens("/no/such/file")
    except FileNotFoundError as error:
        a = a * 2
        print("from")
        raise RuntimeError("wrapped") from error
    return a


def raises_while_handling(t):
    a = t + 1
    try:
        raise KeyError("first")
    except KeyError:
        a = a * 2
        print("first")
        try:
            raise ValueError("second")
        except ValueError as error:
            print("second", repr(error.__context__))
            a = a * 3
    return a + 1


def finally_with_an_error(t, log):
    a = t + 1
    try:
        a = a + opens("/no/such/file")
    finally:
        log.append("cleaned")
        print("cleaning")
        log.append(len(log))
    return a


def tries_in_a_loop(t, items):
    for item in items:
        try:
            t = t + int(item)
            print("ok", item)
        except ValueError:
            t = t - 1
            print("bad", item)
            continue
        finally:
            t = t * 2
    return t


def leaves(t, box):
    box.append(t + 1)
    print("leaving")
    box.append(2)
    raise ValueError("left", len(box))


def leaves_at_once(t, box):
    box.append(t + 1)
    raise ValueError("left", len(box))


def wrong_shapes(t, box):
    box.append(1)
    a = t @ t
    box.append(2)
    return a


def groups(t):
    a = t + 1
    try:
        raise ExceptionGroup("many", [ValueError(1), KeyError(2)])
    except* ValueError:
        a = a * 2
    except* KeyError:
        a = a * 3
    return a


TRY: list[tuple[Any, Any]] = [
    (catches, lambda: (x(), {"k": 1})),
    (catches_what_a_call_raises, one),
    (raises_untraced, one),
    (prints_in_try, one),
    (prints_in_a_handler, one),
    (shows_the_traceback, one),
    (reraises, one),
    (raises_from, one),
    (raises_while_handling, one),
    (finally_with_an_error, lambda: (x(), [])),
    (tries_in_a_loop, lambda: (x(), ["1", "a", "2", "b"])),
    (leaves, lambda: (x(), [])),
    (leaves_at_once, lambda: (x(), [])),
    (wrong_shapes, lambda: (x(), [])),
    (groups, one),
]


@pytest.mark.parametrize(("fn", "make"), TRY, ids=lambda p: getattr(p, "__name__", ""))
def test_try(fn: Any, make: Any) -> None:
    found = resumes(fn, make, calls=3)
    assert found.eager == []
    assert found.compilations <= 24
    assert sys.exc_info() == (None, None, None)


def test_after_a_caught_exception_tracing_goes_on() -> None:
    found = resumes(raises_untraced, one)
    assert len(found.graphs) == 2
    assert found.graphs[1] == ["mul", "add"]
