"""The line that tells of a long compilation."""

from __future__ import annotations

import io
import sys
import time
from typing import Any

import pytest
import torch
from rich.console import Console

import armature
from armature.cli import progress
from armature.cli.progress import PATIENCE, Progress
from armature.pipeline.session import session


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def shown(screen: io.StringIO) -> Progress:
    console = Console(file=screen, force_terminal=True, width=200)
    return Progress(session(), bar=progress.bar_on(console))


def test_a_compilation_under_way_is_told_after_a_while_and_no_longer(shown: Progress, screen: io.StringIO) -> None:
    lines: list[str] = []
    steps: list[float] = []

    def backend(module: Any, inputs: Any) -> Any:
        started = shown.records.compilations[-1].started
        shown.look(started + PATIENCE / 2)
        assert not screen.getvalue()
        shown.look(started + PATIENCE + 1)
        for _ in range(100):  # drawn by a thread of rich
            if "compiling" in screen.getvalue():
                break
            time.sleep(0.05)
        steps.append(shown.bar.tasks[0].completed)
        lines.append(progress.progress_text(shown.records, shown.records.compilations[-1], started + 3))
        return module.forward

    with shown:
        armature.compile(lambda x: x.exp() + 1)(torch.ones(3))
        armature.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
        assert "compiling" in screen.getvalue() and progress.under_way(shown.records) is None
        shown.look(1e12)
    (line,) = lines
    assert "after trace, 3 s (2 frames, 1 graphs, 1 kernels so far)" in line
    assert steps == [1], "tracing is over, of six stages"
    assert not session().followers


def test_the_bar_has_a_step_for_each_stage() -> None:
    armature.compile(lambda x: x.exp() + 1)(torch.ones(3))
    record = session().compilations[-1]
    assert progress.stages_of(record) == list(progress.STAGES)


def test_nothing_is_shown_where_nobody_looks(shown: Progress, screen: io.StringIO) -> None:
    assert not sys.stderr.isatty()
    with shown:
        assert shown._thread is None
        armature.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    assert not screen.getvalue()
