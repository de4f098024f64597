"""Programs that hypothesis writes, compiled and run: values, side effects, aliases and exceptions are those of eager."""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, seed, settings

import armature
from armature.session import Outcome, session
from armature.testing.differential import difference
from armature.testing.programs import Program, sources

RELAXED = list(HealthCheck)
CALLS = (0, 0, 1, 2)  # the second is served by the cache; the last two have other arguments
SHARDS = 10
PER_SHARD = int(os.environ.get("ARMATURE_PROGRAMS", "10000")) // SHARDS
FEWEST_COMPILED = 0.5  # share of the sample that has to be captured: the comparison is not of eager with eager


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what Python says of a source text, and armature of a program compiled too often."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def compare(source: str) -> bool:
    """Run one program; whether anything of it was compiled."""
    armature.reset()
    with quiet():
        try:
            plain = Program(source)
        except SyntaxError:
            return False
        compiled = Program(source, functools.partial(armature.compile, backend="eager"))
        for variant in CALLS:
            assert difference(plain.outcome(variant), compiled.outcome(variant)) <= 1e-6, source
    return any(record.outcome is Outcome.COMPILED for record in session().compilations)


def test_like_eager() -> None:
    compiled: list[bool] = []

    @settings(max_examples=15, deadline=None, suppress_health_check=RELAXED)
    @given(sources())
    def run(source: str) -> None:
        compiled.append(compare(source))

    run()
    assert sum(compiled) >= FEWEST_COMPILED * len(compiled)


@settings(max_examples=10, deadline=None, suppress_health_check=RELAXED)
@given(sources(breaks=True))
def test_like_eager_with_graph_breaks(source: str) -> None:
    compare(source)


@pytest.mark.sweep
@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_like_eager_at_length(shard: int, breaks: bool) -> None:
    """Ten shards of a thousand programs each: some two minutes a shard on one core; ARMATURE_PROGRAMS sets the sum."""

    @seed(shard)
    @settings(max_examples=PER_SHARD, deadline=None, suppress_health_check=RELAXED, database=None)
    @given(sources(breaks=breaks))
    def run(source: str) -> None:
        compare(source)

    run()
