"""Frames that are not worth tracing are left alone at once, with a reason on record; what they call is compiled."""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import armature
from armature.frame.skip import tensors_in_reach
from armature.pipeline.session import Outcome, session

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
    assert "nothing with tensors" in reasons()["count"]
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


def pieces() -> Iterator[Any]:
    yield leaf(torch.arange(3.0))


def test_functions_below_are_compiled_in_a_call_without_tensors_of_a_function_that_is_compiled_for_some() -> None:
    def double(value: Any) -> Any:
        return value * 2 if isinstance(value, torch.Tensor) else contextvars.copy_context().run(list, value())

    compiled = armature.compile(double, backend="eager")
    assert torch.equal(compiled(X), X * 2)
    assert torch.equal(compiled(pieces)[0], X * 2 + 1)
    assert "leaf" in compiled_functions()


def test_a_long_loop_without_tensors_is_not_traced_to_its_end() -> None:
    def count_up(n: int) -> int:
        total = 0
        for number in range(n):
            total += number
        return total

    compiled = armature.compile(count_up, backend="eager")
    assert compiled(100_000) == 4_999_950_000
    assert "no tensor in 1000 calls and rounds of loops" in reasons()["count_up"]


def test_changing_numbers_and_lists_of_a_helper_warn_of_nothing() -> None:
    held: list[int] = []

    def note(n: int) -> int:
        held.append(n)
        return len(held)

    compiled = armature.compile(note, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [compiled(n) for n in range(30)] == list(range(1, 31))
    assert held == list(range(30)) and not session().compilations


def test_a_frame_inside_a_transform_is_compiled_outside_of_it() -> None:
    def double(x: Any) -> Any:
        return x * 2

    compiled = armature.compile(double, backend="eager")
    assert torch.equal(torch.func.vmap(compiled)(X), X * 2)
    assert "transform" in session().compilations[0].reason and not compiled_functions()
    assert torch.equal(compiled(X), X * 2) and len(compiled_functions()) == 1


def test_an_objects_end_is_not_traced() -> None:
    ended: list[int] = []

    class Ending:
        def __del__(self) -> None:
            ended.append(1)

    def end_one() -> Iterator[Any]:
        made = [Ending()]
        made.pop()
        yield len(ended)

    compiled = armature.compile(contextvars.copy_context().run, backend="eager")
    assert compiled(list, end_one()) == [1]
    assert "a finaliser" in reasons()["__del__"]


def test_a_wide_or_deep_search_ends() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    wide = {n: [n] for n in range(100_000)}
    code = leaf.__code__
    assert not tensors_in_reach(code, [deep, wide, deep], {})
    assert tensors_in_reach(code, [1, [[X]]], {}) and tensors_in_reach(code, [], {"torch": torch}) is False
