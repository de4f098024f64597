"""Ctrl-C while compiling: the program stops, or goes on eagerly, as the user chose."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import armature
from armature import config
from armature.pipeline.session import session
from armature.plugin_api import Pass, hookimpl
from armature.plugins import manager
from armature.reports.record import Outcome
from armature.reports.recorder import Recorder

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


def test_the_second_one_stops_it_all_the_same() -> None:
    with (
        manager().registered(Presses(2), "presses"),
        config.patch(eager_on_interrupt=True),
        pytest.raises(KeyboardInterrupt),
    ):
        armature.compile(first)(X)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
