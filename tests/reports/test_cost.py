"""What recording costs: less than 2 % of the time of compiling, measured inside the same compilations, and no call."""

from __future__ import annotations

import pytest
import torch

import armature
from armature.reports.recorder import Recorder, Sampler
from benchmarks.recording import BACKENDS, BUDGET, broken, shares, watching


@pytest.mark.parametrize("backend", BACKENDS)
def test_recording_costs_less_than_two_percent_of_compiling(backend: str) -> None:
    # Other programs on the machine only add to it, as they take turns with this one: the least of some is the cost.
    found = shares(backend, times=8, enough=BUDGET)
    print(f"recording took {', '.join(f'{one:.2%}' for one in found)} of the time of compiling")
    assert 0 < min(found) < BUDGET


def test_what_is_done_for_reports_is_timed() -> None:
    with watching() as stopwatch, Recorder():
        armature.compile(broken, backend="eager")(torch.ones(3))
    assert stopwatch.calls > 10 and stopwatch.seconds > 0


def test_compiled_code_that_is_called_again_does_nothing_for_reports() -> None:
    quiet = Sampler(every=60.0)  # it looks at the memory beside the program, in a thread
    with watching() as stopwatch, Recorder(sampler=quiet):
        compiled = armature.compile(broken, backend="eager")
        compiled(torch.ones(3))
        before = stopwatch.calls
        for _ in range(100):
            compiled(torch.ones(3))
        assert stopwatch.calls == before
