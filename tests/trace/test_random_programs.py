"""Programs that hypothesis writes, compiled and run: values, side effects, aliases and exceptions are those of eager."""

from __future__ import annotations

import ast
import gc
import os
import random
import time
from collections.abc import Callable, Iterator

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from armature.testing.differential import Mismatch
from tests.support import program_runs
from tests.support.program_runs import Endless, Failure, TooLong, failure_of, like_eager, smaller, within
from tests.support.programs import Program, Writer, sources

# Hypothesis only writes: it would take hours to shrink a program, `smaller` takes the time that it is given.
WRITE = settings(
    deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, phases=(Phase.generate,), database=None
)
SHARDS = 10
PER_SHARD = int(os.environ.get("ARMATURE_PROGRAMS", "10000")) // SHARDS
FIRST_SEED = int(os.environ.get("ARMATURE_PROGRAMS_SEED", "0"))
FEWEST_COMPILED = 0.5  # share of the sample that has to be captured: the comparison is not of eager with eager
SECONDS_EACH = 60.0
SECONDS_TO_SHRINK = 60.0
MOST_FAILURES = 5
EACH_FREEZE = 100


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    """Collecting garbage takes no time for what was imported."""
    freeze()
    yield
    gc.unfreeze()


def freeze() -> None:
    gc.collect()
    gc.freeze()


@attrs.define
class Ran:
    """The different programs that were run, with whether anything of each was compiled, and those that failed."""

    programs: dict[str, bool] = attrs.field(factory=dict)
    failures: list[Failure] = attrs.field(factory=list)

    def one(self, source: str) -> None:
        """Run one program."""
        if source in self.programs or len(self.failures) == MOST_FAILURES:
            return
        if len(self.programs) % EACH_FREEZE == EACH_FREEZE - 1:
            freeze()  # what the first ones have imported, and what torch keeps of all
        failure = failure_of(source, SECONDS_EACH, self.compare)
        if failure is not None:
            self.failures.append(failure)

    def compare(self, source: str) -> None:
        self.programs[source] = False
        try:
            self.programs[source] = like_eager(source)
        except Endless:
            del self.programs[source]
            raise

    @property
    def compiled(self) -> int:
        return sum(self.programs.values())

    def check(self) -> None:
        """Fails with all that was found, the programs in whole, and the first one made smaller."""
        if self.failures:
            first = smaller(self.failures[0], SECONDS_TO_SHRINK)
            pytest.fail("\n\n".join(map(str, (first, *self.failures))))


@pytest.mark.parametrize("breaks", [False, True])
def test_like_eager(breaks: bool) -> None:
    ran = Ran()

    @settings(WRITE, max_examples=20)
    @given(sources(breaks=breaks))
    def run(source: str) -> None:
        ran.one(source)

    run()
    ran.check()
    assert ran.compiled >= FEWEST_COMPILED * len(ran.programs)


@pytest.mark.sweep
@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_like_eager_at_length(shard: int, breaks: bool, record_property: Callable[[str, object], None]) -> None:
    """Ten shards of a thousand programs each: one to two minutes a shard on one core; ARMATURE_PROGRAMS sets the sum.

    ARMATURE_PROGRAMS_SEED: other programs. How many ran is in the summary.
    """
    ran = Ran()

    @seed(FIRST_SEED + shard)
    @settings(WRITE, max_examples=PER_SHARD, derandomize=False)
    @given(sources(breaks=breaks))
    def run(source: str) -> None:
        ran.one(source)

    try:
        run()
        ran.check()
    finally:
        record_property("programs", len(ran.programs))
        record_property("programs compiled", ran.compiled)


def test_what_programs_are_made_of() -> None:
    met: set[type[ast.AST]] = set()
    written = 0
    for number in range(400):
        choose = random.Random(number)
        source = Writer(choose.randrange, breaks=number % 2 == 0).program()
        try:
            met |= {type(node) for node in ast.walk(ast.parse(source))}
            written += 1
        except SyntaxError:
            continue  # an assignment expression where Python allows none
    assert written > 350
    assert met >= {
        ast.If, ast.For, ast.While, ast.Break, ast.Continue, ast.Match, ast.Return, ast.Try, ast.TryStar, ast.Raise, ast.Assert,
        ast.With, ast.FunctionDef, ast.Lambda, ast.Nonlocal, ast.Global, ast.Yield, ast.YieldFrom, ast.ListComp, ast.SetComp,
        ast.DictComp, ast.GeneratorExp, ast.NamedExpr, ast.Starred, ast.AugAssign, ast.Delete, ast.JoinedStr, ast.ClassDef,
        ast.Import, ast.ImportFrom, ast.Slice, ast.IfExp, ast.BoolOp, ast.MatMult,
    }  # fmt: skip


ENDLESS = "def program(*args):\n    while True:\n        pass"


def test_a_program_that_does_not_end_once_compiled_is_a_failure() -> None:
    def run(source: str) -> None:
        Program(source).outcome()

    found = failure_of(ENDLESS, 0.2, run)
    assert found is not None
    assert isinstance(found.error, TooLong)
    assert "while True" in str(found)


def test_a_program_that_does_not_end_in_eager_mode_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_runs, "SECONDS_IN_EAGER", 0.2)
    ran = Ran()
    ran.one(ENDLESS)
    assert not ran.programs and not ran.failures


def test_limits_hold_one_in_another() -> None:
    with pytest.raises(TooLong), within(0.2):
        with within(5.0):
            time.sleep(0.05)
        time.sleep(5.0)
    with pytest.raises(TooLong), within(0.1), within(5.0):
        time.sleep(5.0)


def test_a_failure_is_made_smaller() -> None:
    def run(source: str) -> None:
        if "b = 2" in source:
            raise Mismatch(path="", what="", eager="", compiled="")

    found = failure_of("def program():\n    a = 1\n    if a:\n        b = 2\n        c = 3\n    return a", 1.0, run)
    assert found is not None
    assert smaller(found, 10.0, run).source == "def program():\n    b = 2"
