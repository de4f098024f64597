"""Frames that are not worth tracing are left alone at once, with a reason on record; what they call is compiled."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import armature
from armature.session import Outcome, session

X = torch.arange(3.0)


def leaf(x: Any) -> Any:
    return x * 2 + 1


def generator(x: Any) -> Iterator[Any]:
    for _ in range(2):
        yield leaf(x)


async def coroutine(x: Any) -> Any:
    return leaf(x)


async def stream(x: Any) -> AsyncIterator[Any]:
    yield leaf(x)


async def consume(x: Any) -> Any:
    return [item async for item in stream(x)]


def reasons() -> dict[str, str]:
    return {skip.function.rpartition(".")[2]: skip.reason for skip in session().skips}


def compiled_functions() -> list[str]:
    return [c.function for c in session().compilations if c.outcome is Outcome.COMPILED]


SUSPENDED: dict[str, tuple[Callable[..., Any], Callable[[Any], Any], str]] = {
    "generator": (generator, list, "generator"),
    "coroutine": (coroutine, asyncio.run, "coroutine"),
    "async generator": (consume, asyncio.run, "consume"),
}


@pytest.mark.parametrize("name", SUSPENDED)
def test_what_runs_in_pieces_is_left_alone_and_what_it_calls_is_compiled(name: str) -> None:
    fn, run, function = SUSPENDED[name]

    def collect(x: Any) -> Any:
        return run(fn(x))

    compiled = armature.compile(fn, backend="eager")
    expected = torch.stack(list(generator(X)))[0]
    for _ in range(2):
        held = run(compiled(X))
        assert torch.equal(held[0] if isinstance(held, list) else held, expected)
    assert "runs in pieces" in reasons()[function]


def test_a_generator_that_is_run_inside_compiled_code() -> None:
    def run_in_pieces(x: Any, drive: Any) -> Any:
        return [item + 1 for item in drive(list, generator(x))]

    context = contextvars.copy_context()  # whose `run` is not traced, so that the generator is a frame of its own
    compiled = armature.compile(run_in_pieces, backend="eager")
    assert all(torch.equal(item, X * 2 + 2) for item in compiled(X, context.run))
    assert "runs in pieces" in reasons()["generator"]
    assert "leaf" in compiled_functions()


def test_bodies_of_modules_and_classes() -> None:
    source = "y = x * 2\nclass Made:\n    z = x * 3\nresult = y + Made.z\n"

    def run(x: Any) -> Any:
        space = {"x": x, "__name__": "made_here"}
        exec(compile(source, "<a module>", "exec"), space)
        return space["result"]

    compiled = armature.compile(run, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(X), X * 5)
    assert "module or class" in reasons()["<module>"]
    assert "<module>" not in [c.function for c in session().compilations]


def count(n: int, names: list[str]) -> int:
    return n + len(names)


def test_frames_with_no_tensor_in_reach() -> None:
    compiled = armature.compile(count, backend="eager")
    for n in range(5):
        assert compiled(n, ["a"]) == n + 1
    assert "no tensor" in reasons()["count"]
    assert not session().compilations


def test_a_frame_that_once_had_no_tensor_is_compiled_when_it_has_one() -> None:
    def double(value: Any) -> Any:
        return value * 2

    compiled = armature.compile(double, backend="eager")
    assert compiled(3) == 6
    assert torch.equal(compiled(X), X * 2)
    assert compiled_functions() == ["test_a_frame_that_once_had_no_tensor_is_compiled_when_it_has_one.<locals>.double"]


def test_modes_of_tracing_are_not_seen() -> None:
    def count_modes(x: Any) -> Any:
        return x + len(_get_current_dispatch_mode_stack())

    compiled = armature.compile(count_modes, backend="eager")
    assert torch.equal(compiled(X), X)
    assert torch.equal(compiled(X), X)
