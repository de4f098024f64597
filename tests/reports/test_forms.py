"""The forms of a record for tools: SARIF, annotations, traces, and what makes a run fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from rich.console import Console

from armature.reports import chrome_trace, gate, github, memory_chart, sarif, terminal
from armature.reports.record import Break, Frame, GuardFailure, Outcome, Place, Recording
from tests.reports.sample import everything, large

SARIF_SCHEMA = Path(__file__).parent / "data" / "sarif-2.1.0-rtm.5.json"  # as schemastore publishes it


def text_of(recording: Recording, width: int = 140) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(*terminal.report(recording, guards=True, memory=True), sep="\n")
    return captured.get()


def test_the_terminal_tells_causes_and_fixes() -> None:
    text = text_of(everything())
    assert "y.sum() > 1000" in text and "^^^^^^^^^^^^^^" in text
    assert "y is a tensor float32[3, 4] on cpu, requires grad" in text
    assert "self.factor was 2, is now 5" in text and "this backend is <broken>" in text
    assert "hit the limit" in text and "runs in pieces" in text and "What to do: " in text
    for one in everything().breaks:
        assert one.type in text and all(hint.split()[0] in text for hint in one.hints)


def test_a_narrow_terminal_loses_nothing() -> None:
    assert "".join(["self.factor", "was", "2,", "is", "now", "5"]) in "".join(text_of(everything(), 60).split())


def test_memory_is_drawn_to_scale() -> None:
    console = Console(width=memory_chart.LABEL + 8, no_color=True)
    with console.capture() as captured:
        console.print(memory_chart.Area([0, 1, 24, 48]))
    rows = [row[memory_chart.LABEL :].rstrip() for row in captured.get().splitlines()]
    assert len(rows) == memory_chart.ROWS and rows[0] == " " * 6 + "██" and rows[-1] == "  ▁▁████"
    assert memory_chart.resampled([1, 9, 2, 3, 4], 2) == [9, 4], "no peak is lost where steps share a column"


def test_an_empty_record_can_be_shown() -> None:
    assert text_of(Recording()).startswith("0 graphs, 0 breaks")
    assert json.loads(chrome_trace.as_trace(Recording()))["traceEvents"]
    assert json.loads(sarif.as_sarif(Recording()))["runs"][0]["results"] == []
    assert not list(github.lines(Recording()))


def odd() -> Recording:
    """Places and texts that need care."""
    places = (Place("<string>", 0, "<lambda>"), Place("/tmp/a b/ä,c:d.py", 3, "f", "x = 1 % 2", 4, 9))
    broken = tuple(
        Break(k, f"type-{k}", "A: title, 100 %", "line one\nline two ::error::", ("do, this",), stack=(place,))
        for k, place in enumerate(places)
    )
    failure = GuardFailure("n == 1")
    frame = Frame(0, "f", "<string>", 1, Outcome.LIMIT, "too often", None, 0.0, failures=(failure,), breaks=(0, 1))
    return Recording(frames=(frame,), breaks=broken, problems=("a fault",), error="x")


@pytest.mark.parametrize("recording", [everything, odd, large, Recording], ids=lambda make: make.__name__)
def test_sarif_is_as_published(recording: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="validates SARIF")
    log = json.loads(sarif.as_sarif(recording()))
    published = json.loads(SARIF_SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft4Validator(published).validate(log)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(published).validate(log | {"runs": [{"results": []}]})


def test_sarif_has_each_finding_at_its_line() -> None:
    (run,) = sarif.log(everything())["runs"]
    results = run["results"]
    assert {one["ruleId"] for one in results} >= {"recompilation", "recompile-limit", "fallback"}
    for one in results:
        assert run["tool"]["driver"]["rules"][one["ruleIndex"]]["id"] == one["ruleId"]
        assert one["locations"][0]["physicalLocation"]["region"]["startLine"] > 0
    broken = next(one for one in results if one["ruleId"] == everything().breaks[0].type)
    assert broken["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("tests/reports/sample.py")
    assert len({one["partialFingerprints"]["armature/v1"] for one in results}) == len(results)


def test_annotations_are_escaped_and_stand_at_lines() -> None:
    lines = list(github.lines(odd()))
    assert all(line.startswith("::warning file=") and "\n" not in line for line in lines)
    assert "%0Aline two" in lines[0] and "100 %25" in lines[0] and "line=3," in lines[1]
    assert "file=/tmp/a b/ä%2Cc%3Ad.py" in lines[1]
    assert len(list(github.lines(everything()))) == len(gate.everything(everything()))


def test_the_trace_has_compile_and_run_with_kernels_by_name() -> None:
    events = json.loads(chrome_trace.as_trace(everything()))["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert all(event["dur"] >= 0 and {"pid", "tid", "ts", "name"} <= event.keys() for event in complete)
    named = {event["name"] for event in complete if event["cat"] == "kernel"}
    assert named and named <= {kernel.name for kernel in everything().kernels}
    assert {"trace", "lower", "schedule", "codegen", "load"} <= {e["name"] for e in complete if e["cat"] == "stage"}
    lanes = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert lanes == {"compile", "run"} and any(event["ph"] == "C" for event in events)
    assert any(event["ph"] == "i" and event["cat"] == "break" for event in events)


def moved(recording: Recording) -> Recording:
    """The same program in another folder, three lines further down."""

    def shift(one: Break) -> Break:
        return attrs.evolve(one, stack=tuple(attrs.evolve(p, file=f"/ci/{p.file}", line=p.line + 3) for p in one.stack))

    frames = tuple(attrs.evolve(frame, file=f"/ci{frame.file}", line=frame.line + 3) for frame in recording.frames)
    return attrs.evolve(recording, breaks=tuple(map(shift, recording.breaks)), frames=frames)


def test_a_baseline_lets_pass_what_it_has_though_lines_moved() -> None:
    recording = everything()
    all_of_it = gate.failing(recording, Recording(), True, True)
    assert {one.key[0] for one in all_of_it} == {"break", "recompile"}
    assert not gate.failing(recording, moved(recording), True, True)
    fewer = attrs.evolve(recording, breaks=(), frames=())
    assert gate.failing(recording, fewer, True, False) == gate.breaks(recording)
    assert gate.failing(recording, fewer, False, True) == gate.recompilations(recording)
    assert not gate.failing(recording, Recording(), False, False)
    assert all(gate.line(one) for one in all_of_it)
