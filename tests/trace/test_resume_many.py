"""Functions with many breaks, and resume functions that run in eager mode, which have no copy of the program before."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import armature
from armature.errors import ArmatureWarning
from armature.frame.data import resume_point
from armature.trace.resume import resume_functions
from tests.support.resuming import compiled, resumes


def x() -> torch.Tensor:
    return torch.linspace(-1.0, 1.0, 6).reshape(2, 3)


@armature.disable
def outside() -> None:
    """A call that breaks the graph."""


def with_breaks(count: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function with so many breaks, each after a line of its own."""
    lines = [f"    t = t * {number}.0 + 1\n    outside()" for number in range(1, count + 1)]
    namespace: dict[str, Any] = {"outside": outside}
    exec("\n".join(["def program(t):", *lines, "    return t"]), namespace)
    program: Callable[[torch.Tensor], torch.Tensor] = namespace["program"]
    return program


def steps_to_compile(count: int) -> int:
    """How many functions are called and left while a function with so many breaks is compiled and run."""
    mine, records = compiled(with_breaks(count))
    steps = 0

    def step(*_: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(step)
    try:
        mine(x())
    finally:
        sys.setprofile(None)
    assert len(records.compilations) == count
    return steps


def test_breaks_cost_the_same_each() -> None:
    steps_to_compile(5)  # what happens once
    few, many = steps_to_compile(10), steps_to_compile(80)
    assert many / 80 < 1.05 * few / 10


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[CodeType]:
    """The copies of programs that are written while the test runs."""
    found: list[CodeType] = []
    write = resume_functions.eager_resume_code

    def writes(*args: Any) -> CodeType:
        found.append(write(*args))
        return found[-1]

    monkeypatch.setattr(resume_functions, "eager_resume_code", writes)
    return found


def test_what_is_compiled_is_not_copied(written: list[CodeType]) -> None:
    assert len(resumes(with_breaks(3), lambda: (x(),)).graphs) == 3
    assert written == []


SCALE = 2.0


def in_a_handler(t, n):
    """Stack, cells, an exception at work and a context that is entered again, all at the break."""
    shared = t + 1

    def inner():
        return shared * SCALE

    with torch.no_grad():
        try:
            raise ValueError("at work")
        except ValueError as error:
            held = [t * 2, outside(), str(error), inner() * n]
    shared = shared + n
    return held, inner(), sys.exception()


def loops(t, n):
    t = t * 2
    outside()
    for k in range(3):
        t = t + n * k
        outside()
        if t.sum() > 100:
            break
    return t


def raises(t, n):
    t = t + 1
    outside()
    try:
        t = t * n
        return t @ t
    finally:
        t.add_(1)


@pytest.mark.parametrize("program", [in_a_handler, loops, raises])
def test_resumed_in_eager_mode_after_too_many_compilations(program: Any, written: list[CodeType]) -> None:
    """What is read after the break alone is another constant each time, and one compilation is the limit."""
    mine = armature.compile(program, backend="eager", dynamic=False, options={"recompile_limit": 1})
    for n in (2, 3, 4, 5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ArmatureWarning)
            assert outcome(mine, x(), n) == outcome(program, x(), n)
    assert written


def test_each_round_of_a_loop_may_have_code_of_its_own() -> None:
    """Code that resumes in a loop counts its rounds, which one call may need, apart from calls."""

    def each(t: torch.Tensor, named: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        found = {}
        for name, other in named.items():
            found[name] = t * other
            outside()
        return found

    named = {str(n): x() * n for n in range(12)}
    with warnings.catch_warnings():
        warnings.simplefilter("error", ArmatureWarning)
        mine, records = compiled(each)
        for _ in range(2):
            for name, tensor in mine(x(), named).items():
                assert torch.equal(tensor, x() * named[name])
    assert len(records.compilations) == len(named)


def outcome(program: Callable[..., Any], *given: Any) -> str:
    """What a call gives or raises, and what becomes of its arguments, as text."""
    try:
        return repr((program(*given), given))
    except RuntimeError as error:
        lines = [line.lineno for line in traceback.extract_tb(error.__traceback__) if line.filename == __file__]
        return repr((error, lines[1:], given))


class Watching(TorchDispatchMode):
    """A mode that wants to see each operator: nothing is compiled."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@armature.disable
def enter(mode: Watching) -> None:
    """Enter a mode."""
    mode.__enter__()


def watched(t):
    mode = Watching()
    scale = t * 3
    enter(mode)
    try:
        t = t * 2
        scaled = [t * scale for _ in range(2)]
        outside()
        return t + 1, scaled
    finally:
        mode.__exit__(None, None, None)


def test_nothing_is_compiled_after_a_break(written: list[CodeType]) -> None:
    assert resumes(watched, lambda: (x(),)).eager == []
    assert len(written) == 1


def test_the_graph_of_a_resume_function_raises(written: list[CodeType]) -> None:
    def fails(t, index):
        t = t + 1
        outside()
        return t[index] * 2

    def given():
        return x(), torch.tensor([5])

    resumes(fails, given)
    assert len(written) == 1
    assert resume_point(written[0]) is None


def test_the_program_drops_the_function_that_runs() -> None:
    """The code goes on though nothing but the frame knows it."""

    class Holder:
        step: Any

    source = """
def step(self, t):
    t = t + 1
    self.step = None
    outside()
    gc.collect()
    t = t * 2
    outside()
    return t + 3
"""

    def program(t):
        holder = Holder()
        holder.step = make()
        return use(holder, t)

    def make():
        namespace: dict[str, Any] = {"outside": outside, "gc": __import__("gc")}
        exec(source, namespace)
        return namespace["step"]

    def use(holder, t):
        return holder.step(holder, t) * 2

    mine, _ = compiled(use)
    for _ in range(2):
        holder = Holder()
        holder.step = make()
        assert torch.equal(mine(holder, x()), program(x()))
