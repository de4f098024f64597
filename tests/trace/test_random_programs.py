"""Programs that hypothesis writes: the generated code does what eager does, or the frame is left to eager."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from armature.testing.differential import difference
from armature.testing.programs import arguments, compiled, sources
from armature.testing.tracing import comparable, trace
from armature.trace.errors import GraphBreak, SkipFrame

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much]


def outcome(fn: Any, args: tuple[Any, ...]) -> Any:
    """What a call gives, and what it leaves in its arguments; the exception's type and text where it raises."""
    try:
        result = fn(*args)
    except Exception as error:
        result = (type(error).__name__, str(error))
    return {"result": comparable(result), "args": comparable(args)}


def compare(source: str) -> None:
    """Trace and run one program."""
    program = compiled(source)
    eager = outcome(program, arguments())
    try:
        traced = trace(program, *arguments())
    except GraphBreak as stop:
        allowed = {"exception-leaves-frame", "operator-failed"}
        assert stop.event.type.id in allowed, f"{stop}\n{source}"
        assert isinstance(eager["result"][0], str), f"only eager returns; the trace ends in {stop}\n{source}"
        return
    except SkipFrame:
        return
    assert traced.holds(program, *arguments())
    assert difference(eager, outcome(traced.run, arguments())) <= 1e-6, source


@settings(max_examples=60, deadline=None, suppress_health_check=RELAXED)
@given(sources())
def test_like_eager(source: str) -> None:
    compare(source)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, suppress_health_check=RELAXED)
@given(sources())
def test_like_eager_at_length(source: str) -> None:
    compare(source)
