"""Programs that hypothesis writes, compiled and run: values, side effects, aliases and exceptions are those of eager."""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Callable, Iterator

import attrs
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
FIRST_SEED = int(os.environ.get("ARMATURE_PROGRAMS_SEED", "0"))
FEWEST_COMPILED = 0.5  # share of the sample that has to be captured: the comparison is not of eager with eager


@attrs.define
class Ran:
    """The different programs that were run, with whether anything of each was compiled."""

    programs: dict[str, bool] = attrs.field(factory=dict)

    @property
    def compiled(self) -> int:
        return sum(self.programs.values())


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what Python says of a source text, and armature of a program compiled too often."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def compare(source: str, ran: Ran) -> None:
    """Run one program, compiled and not."""
    armature.reset()
    with quiet():
        try:
            plain = Program(source)
        except SyntaxError:
            return
        compiled = Program(source, functools.partial(armature.compile, backend="eager"))
        ran.programs[source] = False
        try:
            for variant in CALLS:
                assert difference(plain.outcome(variant), compiled.outcome(variant)) <= 1e-6
        except BaseException as error:
            error.add_note(f"arguments of variant {variant}, program:\n{source}")
            raise
    ran.programs[source] = any(record.outcome is Outcome.COMPILED for record in session().compilations)


def test_like_eager() -> None:
    ran = Ran()

    @settings(max_examples=15, deadline=None, suppress_health_check=RELAXED, derandomize=True)
    @given(sources())
    def run(source: str) -> None:
        compare(source, ran)

    run()
    assert ran.compiled >= FEWEST_COMPILED * len(ran.programs)


@settings(max_examples=10, deadline=None, suppress_health_check=RELAXED, derandomize=True)
@given(sources(breaks=True))
def test_like_eager_with_graph_breaks(source: str) -> None:
    compare(source, Ran())


@pytest.mark.sweep
@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_like_eager_at_length(shard: int, breaks: bool, record_property: Callable[[str, object], None]) -> None:
    """Ten shards of a thousand programs each: some two minutes a shard on one core; ARMATURE_PROGRAMS sets the sum.

    ARMATURE_PROGRAMS_SEED: other programs. How many ran is in the summary.
    """
    ran = Ran()

    @seed(FIRST_SEED + shard)
    @settings(max_examples=PER_SHARD, deadline=None, suppress_health_check=RELAXED, database=None)
    @given(sources(breaks=breaks))
    def run(source: str) -> None:
        compare(source, ran)

    try:
        run()
    finally:
        record_property("programs", len(ran.programs))
        record_property("programs compiled", ran.compiled)
