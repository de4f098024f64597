"""Programs that hypothesis writes, full of graph breaks: resumed, they do what eager mode does."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from armature.session import Outcome
from armature.testing.breaking_programs import arguments, breaking_sources, compiled
from armature.testing.resuming import resumes

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much]


def check(source: str) -> None:
    """Run one program twice, compiled and not."""
    program = compiled(source)
    try:
        found = resumes(program, arguments)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{source}") from None
    assert all(record.outcome is not Outcome.FALLBACK for record in found.records), source


@settings(max_examples=40, deadline=None, suppress_health_check=RELAXED)
@given(breaking_sources())
def test_like_eager(source: str) -> None:
    check(source)


@pytest.mark.sweep
@settings(max_examples=1000, deadline=None, suppress_health_check=RELAXED)
@given(breaking_sources())
def test_like_eager_at_length(source: str) -> None:
    check(source)
