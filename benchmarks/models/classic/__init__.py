"""Networks that people have trained for years, written with torch alone, at sizes a CPU runs in milliseconds."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.models.case import Case

from . import generation, geometry, recommendation, sequences, vision

CASES: dict[str, Callable[[], Case]] = {
    **vision.CASES,
    **sequences.CASES,
    **recommendation.CASES,
    **generation.CASES,
    **geometry.CASES,
}
