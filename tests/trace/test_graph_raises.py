"""What a compiled graph raises when it runs is seen by the program as in eager mode: handlers, changes, lines."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from armature import config
from armature.api_errors import ArmatureWarning
from armature.testing.resuming import compiled, resumes


def one() -> tuple[Any, ...]:
    return torch.linspace(-1.0, 1.0, 6).reshape(2, 3), []


class Logs:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, tb):
        self.log.append(("exit", kind))
        return False


def error_in_with(t, a, says=False):
    with Logs(a):
        if says:
            print("before")
        idx = torch.tensor([5, 9])
        t = t[idx] * 2
        t = t + 1
    return t


def error_in_with_after_a_break(t, a):
    return error_in_with(t, a, says=True)


def error_in_try(t, a, says=False):
    try:
        if says:
            print("before")
        idx = torch.tensor([5, 9])
        t = t[idx] * 2
        t = t + 1
    except IndexError as e:
        a.append(type(e))
    finally:
        a.append("fin")
    return t


def error_in_try_after_a_break(t, a):
    return error_in_try(t, a, says=True)


def runtime_error_effects(t, a):
    a.append(1)
    idx = torch.tensor([5, 9])
    a.append(2)
    t = t[idx] * 2
    a.append(3)
    return t


def stars(t, a, *more, scale=2, **named):
    a.append((more, scale, named))
    return t[torch.tensor([7])] * scale


def calls_stars(t, a):
    return stars(t, a, 1, 2, scale=3, other=4)


def in_a_loop_after_a_break(t, a):
    for n in (0, 1, 5):
        try:
            print(n)
            a.append(t[torch.tensor([n])].sum() * 2)
        except IndexError as error:
            a.append(str(error))
        else:
            a.append("fine")
    return t + 1


def in_no_grad(t, a):
    with torch.no_grad():
        t = t[torch.tensor([9])] * 2
        a.append(t)
    return t


def closure(t, a):
    n = 0

    def inner():
        nonlocal n
        n += 1
        a.append(n)
        return t[torch.tensor([n])]

    inner()
    return inner() + n


def handled_error(t, a):
    try:
        raise KeyError("first")
    except KeyError:
        t = t * 2
        try:
            t = t[torch.tensor([4])] + 1
        except IndexError as error:
            a.append(repr(error.__context__))
    return t


PROGRAMS = [
    error_in_with, error_in_with_after_a_break, error_in_try, error_in_try_after_a_break,
    runtime_error_effects, calls_stars, in_a_loop_after_a_break, in_no_grad, closure, handled_error,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_like_eager(program: Callable[..., Any]) -> None:
    found = resumes(program, one)
    assert found.graphs and not found.eager


def draws(t, a):
    t = torch.rand(2) + t[torch.tensor([8])]
    a.append(t)
    return t


def writes(t, a):
    t.add_(1)
    return t[torch.tensor([8])]


@pytest.mark.parametrize("program", [draws, writes])
def test_a_graph_that_has_done_something_does_not_run_twice(program: Callable[..., Any]) -> None:
    mine, _ = compiled(program)
    args = one()
    torch.manual_seed(0)
    with pytest.raises(IndexError):
        mine(*args)
    ours = torch.get_rng_state()
    torch.manual_seed(0)
    theirs = one()
    with pytest.raises(IndexError):
        program(*theirs)
    assert torch.equal(torch.get_rng_state(), ours)
    assert torch.equal(args[0], theirs[0])


def broken(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        raise RuntimeError("of the kernel")

    return run


def plain(t):
    return t * 2


def test_an_error_that_eager_mode_does_not_have() -> None:
    x = torch.ones(3)
    mine, _ = compiled(plain, broken)
    with pytest.raises(RuntimeError, match="of the kernel"):  # strict mode
        mine(x)
    mine, _ = compiled(lambda t: t * 2, broken)
    with config.patch(strict=False), pytest.warns(ArmatureWarning, match="of the kernel"):
        assert torch.equal(mine(x), x * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(mine(x), x * 2)  # said once
