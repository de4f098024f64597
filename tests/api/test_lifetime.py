"""Compiled code keeps nothing of the user's alive, and nothing waits for a garbage collection after a first call."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

import armature
from armature import config
from armature.errors import ArmatureError
from armature.trace.base import Value
from armature.trace.frame_state import Frame
from armature.trace.tracer import Tracer


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("train", [False, True])
def test_a_model_and_its_inputs_die_when_their_user_lets_go(backend: str, train: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(2, 4)
    compiled = armature.compile(model, backend=backend)
    with torch.set_grad_enabled(train):
        result = compiled(x)
        if train:
            result.sum().backward()
    references = [weakref.ref(model), weakref.ref(model[0].weight), weakref.ref(x)]
    del model, compiled, x, result
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


class Held:
    """An object of the program that is given to compiled code."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class Straight(nn.Module):
    """One graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, held: Held) -> Tensor:
        return self.second(self.first(held.tensor).relu())


class Broken(Straight):
    """Breaks in the function itself, in a context manager and in a function that is called, and a branch."""

    def forward(self, held: Held) -> Tensor:
        hidden = self.first(held.tensor).relu()
        print(end="")
        with torch.no_grad():
            print(end="")
        self.stop(hidden)
        if hidden.sum() > 1e9:
            hidden = hidden * 2
        return self.second(hidden)

    def stop(self, hidden: Tensor) -> Tensor:
        print(end="")
        return hidden


class Iterates(Straight):
    """Generators and iterators, used up, given up and in use at a break."""

    def forward(self, held: Held) -> Tensor:
        hidden = [self.first(held.tensor), self.second(held.tensor)]
        doubled, pairs = (h * 2 for h in hidden), zip(hidden, hidden)
        total = next(doubled) + next(iter(pairs))[0] + sum(h.relu() for h in hidden)
        for h in (h + 1 for h in hidden):
            print(end="")
            total = total + h
        return total


class Catches(Straight):
    """Exceptions that are raised and caught, and closures that call themselves."""

    def forward(self, held: Held) -> Tensor:
        hidden = self.first(held.tensor)
        try:
            raise ValueError(hidden)
        except ValueError as error:
            hidden = error.args[0] + 1

        def again(times: int, value: Tensor) -> Tensor:
            return again(times - 1, value * 2) if times else value

        return self.second(again(2, hidden))


@contextmanager
def printing(hidden: Tensor) -> Iterator[Tensor]:
    """Breaks before, after and in the handler of the block."""
    print(end="")
    try:
        yield hidden + 1
    except KeyError:
        print(end="")
    print(end="")


class Managed(Straight):
    """Breaks in the code of a context manager that is written as a generator, whose block ends, breaks or raises."""

    def forward(self, held: Held) -> Tensor:
        hidden = self.first(held.tensor)
        with printing(hidden) as more:
            hidden = hidden + more
        with printing(hidden) as more:
            print(end="")
            hidden = hidden + more
        with printing(hidden) as more:
            raise KeyError("gone")
        return self.second(hidden)


class Handles(Straight):
    """Breaks while exceptions are handled, single and in groups, and exceptions that others caused."""

    def forward(self, held: Held) -> Tensor:
        hidden = self.first(held.tensor)
        try:
            raise ExceptionGroup("two", [ValueError("first"), KeyError("second")])
        except* ValueError:
            print(end="")
            hidden = hidden + 1
        except* KeyError:
            print(end="")
        try:
            try:
                print(end="")
                raise KeyError("cause")
            except KeyError as cause:
                print(end="")
                raise ValueError("effect") from cause
        except ValueError as effect:
            print(end="")
            hidden = hidden + len(str(effect))
        return self.second(hidden)


class Fails(Straight):
    """An exception of the program leaves the function that calls compute in, and then the whole."""

    def forward(self, held: Held) -> Tensor:
        try:
            return self.refuse(self.first(held.tensor))
        except ValueError as error:
            print(end="")
            raise ValueError("refused") from error

    def refuse(self, hidden: Tensor) -> Tensor:
        refusal = ValueError(f"{len(hidden)} rows")
        try:
            raise refusal
        finally:
            del refusal


class Raises(Straight):
    """The graph raises."""

    def forward(self, held: Held) -> Tensor:
        return self.first(held.tensor)[torch.tensor([7])]


def fails(module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    raise RuntimeError("no code")


class Keeps:
    """A backend that keeps the graphs which it is given."""

    def __init__(self) -> None:
        self.kept: list[object] = []

    def __call__(self, module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.kept.append(module)
        return module


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def step(model: Callable[..., Any], rows: int, train: bool) -> list[weakref.ref[Any]]:
    """Call a model; what leads to the arguments, which nobody holds any more."""
    held = Held(torch.randn(rows, 4))
    with suppress(IndexError, ValueError, ArmatureError), torch.set_grad_enabled(train):
        result = model(held)
        if train:
            result.sum().backward()
    return [weakref.ref(held), weakref.ref(held.tensor)]


def alive(references: list[weakref.ref[Any]]) -> int:
    return sum(reference() is not None for reference in references)


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        *itertools.product((Straight, Broken, Iterates, Catches, Managed, Handles, Fails, Raises), ("eager", "auto")),
        *itertools.product((Straight, Broken), (Keeps(), fails)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_nothing_waits_for_a_garbage_collection(kind: type[Straight], backend: Any, train: bool) -> None:
    kept = alive(step(kind(), 2, train))  # Python 3.12 itself keeps an exception that a generator has handled
    model = kind()
    with config.patch(strict=False, fallback_warning=False):
        compiled = armature.compile(model, backend=backend)
        for rows in (2, 3, 4):  # compiled, and twice again: for another size, and for any
            assert alive(step(compiled, rows, train)) <= kept
    references = [weakref.ref(model), *map(weakref.ref, model.parameters())]
    del model, compiled
    assert kept or alive(references) == 0


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_what_fullgraph_refuses_dies_with_the_error(train: bool) -> None:
    model = Broken()
    compiled = armature.compile(model, fullgraph=True)
    assert alive(step(compiled, 2, train)) == 0
    references = [weakref.ref(model), *map(weakref.ref, model.parameters())]
    del model, compiled
    assert alive(references) == 0


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("kind", [Straight, Broken])
def test_what_explain_was_given_dies(kind: type[Straight]) -> None:
    model = kind()
    assert alive(step(lambda held: armature.explain(model)(held), 2, train=False)) == 0


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("kind", [Straight, Broken, Iterates])  # a closure that calls itself holds itself, in eager too
def test_the_trace_is_gone_when_the_frame_is_compiled(kind: type[Straight]) -> None:
    """No value of a trace is left for the collector, whether it leads to an object of the program or not."""
    compiled = armature.compile(kind(), backend="eager")
    gc.freeze()  # what was there before
    try:
        step(compiled, 2, train=False)
        left = [type(obj).__qualname__ for obj in gc.get_objects() if issubclass(type(obj), (Tracer, Frame, Value))]
    finally:
        gc.unfreeze()
    assert left == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_the_first_call_of_a_process(backend: str) -> None:
    """In it torch imports what it needs, and frames that refer to themselves stay behind."""
    script = f"""
import gc, weakref
import armature, torch
gc.disable()
model = torch.nn.Linear(4, 4)
compiled = armature.compile(model, backend={backend!r})
x = torch.randn(2, 4)
compiled(x).sum().backward()
references = [weakref.ref(x), weakref.ref(model)]
del x, model, compiled
print(*[reference() is None for reference in references])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
