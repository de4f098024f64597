"""Programs that hypothesis writes, full of graph breaks: resumed, they do what eager mode does."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, seed, settings

from armature.session import Outcome
from armature.testing.programs import Program, sources
from armature.testing.resuming import resumes

RELAXED = list(HealthCheck)
AT_LENGTH = int(os.environ.get("ARMATURE_PROGRAMS", "10000")) // 10
FIRST_SEED = int(os.environ.get("ARMATURE_PROGRAMS_SEED", "0"))


def check(source: str) -> bool:
    """Run one program twice, compiled and not; whether it is a program."""
    try:
        program = Program(source)
    except SyntaxError:
        return False
    try:
        found = resumes(program.fn, program.fresh)
        assert all(record.outcome is not Outcome.FALLBACK for record in found.records)
    except BaseException as error:
        error.add_note(f"program:\n{source}")
        raise
    return True


@settings(max_examples=40, deadline=None, suppress_health_check=RELAXED, derandomize=True)
@given(sources(breaks=True))
def test_like_eager(source: str) -> None:
    check(source)


@pytest.mark.sweep
def test_like_eager_at_length(record_property: Callable[[str, object], None]) -> None:
    ran: set[str] = set()

    @seed(FIRST_SEED)
    @settings(max_examples=AT_LENGTH, deadline=None, suppress_health_check=RELAXED, database=None)
    @given(sources(breaks=True))
    def run(source: str) -> None:
        if check(source):
            ran.add(source)

    try:
        run()
    finally:
        record_property("programs", len(ran))
