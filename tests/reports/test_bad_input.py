"""Reports of what goes wrong around them: odd names of files, faults of plugins, records that can't be read."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import armature
from armature.breaks.types import BreakType
from armature.cli.terminal import console
from armature.pipeline import repro
from armature.pipeline.session import Compilation, Outcome
from armature.plugin_api import hookimpl
from armature.plugins import manager
from armature.reports import chrome_trace, gate, github, html, of_tests, record, sarif, schema
from armature.reports.files import Reports
from armature.reports.record import Break, Frame, Place, Recording
from armature.reports.recorder import Recorder
from tests.reports.conftest import Kept

BYTES = os.fsdecode(b"/tmp/odd\xff.py")  # a name of a file that is no text


def broken(x: Any) -> Any:
    return x + 1 if x.sum() > 0 else x


def recording_of_odd_names() -> Recording:
    place = Place(BYTES, 3, "f", "x = y", 4, 5)
    broke = Break(0, "mine", "My break", f"It is in {BYTES}.", ("do this",), stack=(place,))
    frame = Frame(0, "f", BYTES, 1, record.Outcome.FELL_BACK, f"of {BYTES}", None, 0.0, breaks=(0,))
    return Recording(program=BYTES, folder="/tmp", frames=(frame,), breaks=(broke,), problems=(BYTES,))


def test_names_of_files_that_are_no_text_are_written_in_all_forms(tmp_path: Path) -> None:
    files = Reports(tmp_path / "page.html", tmp_path / "record.json", tmp_path / "log.sarif", tmp_path / "trace.json")
    written: list[Path] = []
    recording = recording_of_odd_names()
    assert files.write(recording, written.append) is None and len(written) == 4
    assert schema.from_json((tmp_path / "record.json").read_text(encoding="utf-8")) == recording
    assert "odd%FF.py" in (tmp_path / "log.sarif").read_text(encoding="utf-8")
    assert "odd\\udcff.py" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert gate.failing(recording, recording, True, True) == ()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_stream_that_has_not_all_characters_gets_the_report(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    screen = console()
    screen.print(f"├── {BYTES} ä")
    print(*github.lines(recording_of_odd_names()), sep="\n", flush=True)
    assert b"odd\\udcff.py" in raw.getvalue() and b"::warning file=odd\\udcff.py,line=3" in raw.getvalue()


def test_a_form_that_fails_loses_no_other(tmp_path: Path) -> None:
    files = Reports(tmp_path / "page.html", tmp_path / "record.json", tmp_path / "log.sarif", tmp_path / "trace.json")
    written: list[Path] = []
    with mock.patch.object(html, "page", side_effect=KeyError("of the page")):
        problem = files.write(Recording(), written.append)
    assert "page.html" in str(problem) and "KeyError: 'of the page'" in str(problem)
    assert written == [tmp_path / "record.json", tmp_path / "log.sarif", tmp_path / "trace.json"]


def test_a_look_at_a_frame_that_cannot_be_read_is_told_and_loses_no_other() -> None:
    with Recorder() as recorder:
        armature.compile(broken, backend="eager")(torch.ones(3))
    looks = recorder.records.compilations
    unreadable: Any = None  # where an event is to be
    looks.insert(1, Compilation(99, "f", "f.py", 1, outcome=Outcome.FALLBACK, reason="r", breaks=(unreadable,)))
    made = recorder.recording()
    assert [frame.function for frame in made.frames].count("f") == 1 and len(made.frames) == len(looks)
    (odd,) = [frame for frame in made.frames if frame.function == "f"]
    assert odd.outcome is record.Outcome.FELL_BACK and odd.reason.startswith("r; its record can't be read in full: ")
    assert [problem for problem in made.problems if problem.startswith("f.py:1 f: its record can't be read in full")]
    assert [one.type for one in made.breaks] == ["data-dependent-branch"]
    assert schema.from_json(schema.as_json(made)) == made


class Doubled:
    """A plugin with a type of the same id as another one, and two of its own with one id."""

    @hookimpl
    def armature_break_types(self) -> list[BreakType]:
        first = BreakType("data-dependent-branch", "Mine", "It is mine.", ("a", "b"))
        return [first, BreakType("same", "One", "one", ("a", "b")), BreakType("same", "Other", "other", ("a", "b"))]


@pytest.fixture
def doubled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with manager().registered(Doubled(), "doubled"), armature.config.patch(strict=False):
        yield


def test_ids_that_two_types_have_are_a_problem_that_all_forms_of_reports_tell(doubled: None, kept: Kept) -> None:
    with Recorder() as recorder, armature.config.patch(log={"frame"}):
        armature.compile(broken, backend="eager")(torch.ones(3))
    recording = recorder.recording()
    assert [one.title for one in recording.breaks] == ["Data-dependent branching"], "the first one is used"
    double = [problem for problem in recording.problems if "[A107]" in problem]
    assert len(double) == 2 and "break type of same" in double[1] and "doubled" in double[1]
    (run,) = sarif.log(recording)["runs"]
    texts = {
        "terminal and pytest": of_tests.plain_text(recording),
        "page": html.page(recording),
        "json": schema.as_json(recording),
        "sarif": json.dumps(run["invocations"]),
        "trace": chrome_trace.as_trace(recording),
    }
    assert [form for form, text in texts.items() if text.count("break type of same") != 1] == []
    assert len(list(github.lines(recording))) == len(run["results"]) == 1
    assert "Data-dependent branching" in kept.texts["armature.frame"][0]


def test_the_script_of_a_failure_fails_no_run(tmp_path: Path) -> None:
    """The name of a function or the text of an error may be no text; a report that can't be made is left out."""
    odd = Compilation(0, BYTES, BYTES, 1)
    folder = repro.leave(tmp_path, odd, ValueError(BYTES))
    assert folder is not None and "odd\\udcff" in (folder / "error.txt").read_text()
    with mock.patch.object(repro, "text_of", side_effect=RuntimeError("no text")):
        assert repro.leave(tmp_path, odd, ValueError()) is None


def test_records_whose_values_have_other_types_are_none() -> None:
    text = schema.as_json(Recording(frames=recording_of_odd_names().frames))
    for wrong in ('"seconds": "long"', '"seconds": null', '"seconds": [1]'):
        with pytest.raises(schema.NotARecord):
            schema.from_json(text.replace('"seconds": 0.0', wrong))
    with pytest.raises(schema.NotARecord):
        schema.from_json("[" * 100_000)


def test_what_a_program_has_no_source_for_is_told_in_general() -> None:
    names: dict[str, Any] = {}
    exec("def branch(x):\n    return x + 1 if x.sum() > 0 else x", names)
    with Recorder() as recorder:
        armature.compile(names["branch"], backend="eager")(torch.ones(3))
    assert recorder.recording().breaks[0].explanation.startswith("`<the condition>` is known only after")
