"""Ctrl-C while compiling: the program stops, or goes on eagerly, as the user chose."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import armature
from armature import config
from armature.lower import lower
from armature.pipeline.session import session
from armature.plugin_api import CompileEvent, Pass, hookimpl
from armature.plugins import manager
from armature.reports.record import Outcome
from armature.reports.recorder import Recorder
from armature.torch_abi import fake
from armature.trace.recording import graph_nodes

X = torch.ones(3)


class Presses:
    """A plugin that presses Ctrl-C in the middle of a compilation."""

    def __init__(self, times: int = 1) -> None:
        self.times = times
        self.runs = 0

    @hookimpl
    def armature_passes(self) -> list[Pass]:
        return [Pass("presses", "post_grad", self.press)]

    def press(self, graph: Any, ctx: Any) -> Any:
        self.runs += 1
        for _ in range(self.times):
            signal.raise_signal(signal.SIGINT)
        return graph


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """Ctrl-C as in a terminal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def first(x: Any) -> Any:
    return torch.relu(x) + 1


def second(x: Any) -> Any:
    return torch.relu(x) + 2


def test_the_program_stops_unless_told_otherwise() -> None:
    with manager().registered(Presses(), "presses"), pytest.raises(KeyboardInterrupt):
        armature.compile(first)(X)
    assert not session().given_up


def test_the_program_goes_on_eagerly_where_the_user_chose_that() -> None:
    presses = Presses()
    with (
        manager().registered(presses, "presses"),
        config.patch(eager_on_interrupt=True),
        Recorder() as recorder,
        pytest.warns(armature.ArmatureWarning, match="goes on eagerly"),
    ):
        assert torch.equal(armature.compile(first)(X), first(X))
        assert torch.equal(armature.compile(second)(X), second(X))
    assert presses.runs == 1, "nothing is compiled after that"
    frames = {frame.function: frame for frame in recorder.recording().frames}
    assert frames["first"].outcome is Outcome.FELL_BACK and "Ctrl-C" in frames["first"].reason
    assert frames["second"].outcome is Outcome.SKIPPED and "Ctrl-C" in frames["second"].reason
    armature.reset()
    armature.compile(second)(X)
    assert session().compilations[-1].outcome.value == "compiled"


@pytest.mark.parametrize("stage", ["trace", "graph", "training graph", "lower"])
def test_it_does_not_wait_for_the_end_of_the_compilation(stage: str) -> None:
    """Pressed in the middle of a stage: of a hundred operators only a few more are looked at."""
    seen = []

    class PressesAt:
        @hookimpl
        def armature_compile_event(self, event: CompileEvent) -> None:
            seen.append(event.detail)

    def many(x: Any) -> Any:
        for _ in range(100):
            x = x.sin() + 1 if stage == "training graph" else torch.nn.functional.logsigmoid(x) + 1
        return x

    given = X.clone().requires_grad_(stage == "training graph")
    on_fakes = (fake.WatchingMode, "__torch_dispatch__")
    place, name = {
        "trace": (graph_nodes, "record"),
        "graph": on_fakes,
        "training graph": on_fakes,
        "lower": (lower._Lowering, "call"),
    }[stage]
    asked, original = [], getattr(place, name)

    def pressing(*args: Any, **kwargs: Any) -> Any:
        asked.append(name)
        if not pressed and ("graph" not in stage or "trace" in seen):
            pressed.append(len(asked))
            signal.raise_signal(signal.SIGINT)
        return original(*args, **kwargs)

    pressed: list[int] = []
    with pytest.MonkeyPatch.context() as patch, manager().registered(PressesAt(), "watching"):
        patch.setattr(place, name, pressing)
        with pytest.raises(KeyboardInterrupt):
            armature.compile(many)(given)
    assert len(asked) <= pressed[0] + 20
    torch.testing.assert_close(armature.compile(many)(given), many(given))  # the next call compiles it


def test_a_handler_of_the_program_that_only_takes_note_stops_nothing() -> None:
    noted = []
    signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
    with manager().registered(Presses(), "presses"):
        assert torch.equal(armature.compile(first)(X), first(X))
    assert noted == [signal.SIGINT] and session().compilations[-1].outcome.value == "compiled"


def test_the_second_one_stops_it_all_the_same() -> None:
    with (
        manager().registered(Presses(2), "presses"),
        config.patch(eager_on_interrupt=True),
        pytest.raises(KeyboardInterrupt),
    ):
        armature.compile(first)(X)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
