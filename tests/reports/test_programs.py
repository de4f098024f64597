"""Programs that break: the report names the line, the expression and the cause that a reader of the code sees."""

from __future__ import annotations

import inspect
import io
import linecache
import sys
from typing import Any

import attrs
import pytest
import torch
from rich.console import Console

import armature
from armature.breaks.types import HintKind
from armature.reports.html import page
from armature.reports.record import Outcome, Recording
from armature.reports.recorder import Recorder
from armature.reports.terminal import break_lines
from tests.reports import broken_programs as programs

# Python 3.11 and 3.12 give `with` the columns of the statement, later versions those of what is entered.
ENTERED = "LOCK" if sys.version_info >= (3, 13) else "with LOCK:"
# The expression that stands under the caret, and words of the cause.
CAUSES: dict[str, tuple[str, str]] = {
    "branch_on_a_sum": ("y.sum() > 0", "tensor"),
    "loop_until_small": ("x.norm() > 1", "tensor"),
    "prints": ('print("shape", y.shape)', "print"),
    "logs": ('log.warning("a message")', "_getframe"),
    "takes_a_number_out": ("x.sum().item()", "item"),
    "makes_a_list": ("(x * 2).tolist()", "tolist"),
    "unique_values": ("torch.unique(x)", "unique"),
    "size_by_values": ("x[x > 0]", "tensor"),
    "where_nonzero": ("torch.nonzero(x)", "nonzero"),
    "asks_for_a_break": ('armature.graph_break("the loader is not ready")', "the loader is not ready"),
    "calls_a_disabled_function": ("left_out(y)", "left_out"),
    "reads_a_file": ("Path(__file__).read_text()", "io."),
    "looks_at_the_clock": ("time.time()", "time.time"),
    "takes_a_lock": ("threading.Lock()", "lock"),
    "reads_its_source": ("inspect.getsource(prints)", "getfile"),
    "indexes_by_the_largest": ("int(x.argmax())", "int()"),
    "asks_for_an_address": ("y.data_ptr()", "data_ptr"),
    "evaluates_text": ('eval("1 + 1")', "eval"),
    "runs_a_coroutine": ("nothing()", "coroutine"),
    "saves": ('torch.save({}, "/dev/null")', "save"),
    "Outer": ("y.mean() > 0", "tensor"),
    "holds_a_lock": (ENTERED, "lock between threads"),
    "asks_the_date": ("datetime.date.today()", "reads the clock"),
}
NOT_PROGRAMS = {"left_out", "nothing", "Inner"}
KINDS = {kind.value for kind in HintKind}
X = torch.tensor([1.0, -2.0, 3.0])


def recording_of(name: str) -> Recording:
    program: Any = getattr(programs, name)
    program = program() if isinstance(program, type) else program
    with Recorder(name) as recorder:
        armature.compile(program, backend="eager")(X)
    return recorder.recording()


def test_all_programs_are_here() -> None:
    own = {n for n, v in vars(programs).items() if getattr(v, "__module__", "") == programs.__name__ and callable(v)}
    assert own - NOT_PROGRAMS == CAUSES.keys() and len(CAUSES) >= 20


@pytest.mark.parametrize("name", CAUSES)
def test_the_report_names_the_cause(name: str) -> None:
    expression, cause = CAUSES[name]
    recording = recording_of(name)
    first = recording.breaks[0]
    assert first.place is not None and linecache.getline(first.place.file, first.place.line).rstrip().endswith("# here")
    assert first.place.text[first.place.column : first.place.end_column] == expression
    assert first.place.caret.index("^") == first.place.text.index(expression)
    assert cause.lower() in f"{first.title} {first.explanation}".lower()
    assert first.hints and all("<" not in hint for hint in first.hints), "a fact is missing"
    assert recording.frames[0].outcome is Outcome.BROKEN and first.id in recording.frames[0].breaks
    assert first.title in recording.frames[0].reason and first.place.where in recording.frames[0].reason


@pytest.mark.parametrize("name", CAUSES)
def test_each_look_at_a_frame_has_an_outcome_with_a_reason(name: str) -> None:
    recording = recording_of(name)
    assert recording.frames and all(frame.reason.strip() for frame in recording.frames)
    for frame in recording.frames:
        assert frame.parent is None or frame.parent < frame.id
        assert frame.callers, "someone has called it"
        assert bool(frame.breaks) == (frame.outcome is Outcome.BROKEN)


def test_each_hint_has_a_kind_and_the_reports_say_it() -> None:
    recording = recording_of("branch_on_a_sum")
    (one,) = recording.breaks
    assert len(one.advice) == len(one.hints) >= 2 and {kind for _, kind in one.advice} <= KINDS
    console = Console(file=io.StringIO(), width=400)
    for line in break_lines(one):
        console.print(line)
    text, shown = console.file.getvalue(), page(recording)  # type: ignore[attr-defined]
    for hint, kind in one.advice:
        assert f"What to do: {hint} ({kind})" in text
        assert f'<span class="dim kind">({kind})</span>' in shown
    older = attrs.evolve(one, hint_kinds=())
    assert [kind for _, kind in older.advice] == [""] * len(one.hints)


def test_values_have_types_and_shapes() -> None:
    (seen,) = recording_of("branch_on_a_sum").breaks[0].values
    assert (seen.expression, seen.description) == ("y", "a tensor float32[3] on cpu")


def test_a_break_in_a_library_is_told_at_the_programs_own_line() -> None:
    for one in recording_of("reads_its_source").breaks:
        assert one.place is not None and one.place.file == inspect.getfile(programs)


def test_a_break_met_again_is_counted_and_told_once() -> None:
    with Recorder() as recorder:
        compiled = armature.compile(programs.branch_on_a_sum, backend="eager", dynamic=False)
        for size in (2, 3, 4):
            compiled(torch.ones(size))
    (one,) = recorder.recording().breaks
    assert one.count == 3 and len(one.frames) == 3
    assert one.seconds > 0


def test_what_follows_a_break_is_told_below_it_and_its_time_counts() -> None:
    recording = recording_of("branch_on_a_sum")
    rest = next(frame for frame in recording.frames if "(resumed" in frame.function)
    assert rest.parent == recording.frames[0].id and rest.outcome is Outcome.COMPILED
    assert recording.breaks[0].seconds >= rest.seconds > 0
