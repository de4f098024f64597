"""The plugin for pytest, in runs of pytest of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from armature import config
from armature.reports import schema
from armature.reports.pytest_plugin import file_name

PROGRAM = """
import armature, pytest, torch

X = torch.ones(3)

@pytest.mark.fullgraph
def test_whole():
    armature.compile(lambda x: torch.relu(x) + 1)(X)

@pytest.mark.fullgraph
def test_broken():
    armature.compile(lambda x: (x + 1).tolist(), backend="eager")(X)

@pytest.mark.fullgraph
def test_nothing():
    pass

def test_unmarked():
    armature.compile(lambda x: (x + 1).tolist(), backend="eager")(X)

def shared(x, n):
    return x * n

@pytest.mark.parametrize("again", [1, 2])
def test_watch(armature_watch, again):
    compiled = armature.compile(shared)
    compiled(X, 2.0)
    armature_watch.expect(graphs=1, breaks=0, recompiles=0, kernels=1)
    compiled(torch.ones(4), 2.0)
    assert armature_watch.recompiles == 1 and "x was a tensor" in armature_watch.recording.recompiled[0].reason

def test_watch_that_fails(armature_watch):
    armature.compile(lambda x: x.tolist(), backend="eager")(X)
    armature_watch.expect(breaks=0)

def test_that_raises():
    armature.compile(lambda x: x + 1, backend="eager")(X)
    raise ValueError("of the test")
"""


@pytest.fixture
def program(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.Pytester]:
    # A pytester has a home of its own, where there are no kernels yet.
    monkeypatch.setenv("ARMATURE_CACHE_DIR", str(config.current().cache_dir))
    pytester.makepyfile(test_program=PROGRAM)
    yield pytester


def options() -> tuple[str, ...]:
    """The plugin by name where the entry point is not installed yet, as in a tree that was just updated."""
    installed = any(point.name == "armature" for point in metadata.entry_points(group="pytest11"))
    return ("-p", "no:cacheprovider", "-p", "no:logging") if installed else ("-p", "armature.reports.pytest_plugin")


def test_marks_watches_and_reports(program: pytest.Pytester) -> None:
    result = program.runpytest_subprocess("--strict-markers", "--armature-report", "out/reports", *options())
    result.assert_outcomes(passed=4, failed=4)
    lines = result.outlines
    assert any("marked fullgraph, but 1 graph broke and 0 frames ran eagerly" in line for line in lines)
    assert any("marked fullgraph, but armature compiled nothing" in line for line in lines)
    assert any("1 breaks, expected 0" in line for line in lines)
    assert any("x.tolist()" in line for line in lines)
    folder = program.path / "out" / "reports"
    records = {file.stem: schema.from_json(file.read_text()) for file in folder.glob("*.json")}
    assert len(records) == 7  # all but the one in which nothing was compiled
    assert {record.program for record in records.values()} >= {"test_program.py::test_watch[1]"}
    raised = next(record for record in records.values() if record.program.endswith("test_that_raises"))
    assert "ValueError: of the test" in raised.error and raised.frames
    index = (folder / "index.html").read_text()
    assert index.count("<tr>") == 8 and "test_watch[1]" in index
    assert all((folder / f"{name}.html").is_file() for name in records)


def test_a_folder_that_cannot_be_made_is_told_before_any_test(program: pytest.Pytester) -> None:
    (program.path / "file").write_text("")
    result = program.runpytest_subprocess("--armature-report", "file/reports", *options())
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines("*--armature-report: file/reports can't be written*")


FOLDER_GOES = """
import armature, pytest, torch, shutil

def test_whose_report_cannot_be_written():
    armature.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    shutil.rmtree("out")

@pytest.mark.fullgraph
def test_that_fails_by_itself():
    armature.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    assert False, "of the test"
"""


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["here", "xdist"])
def test_a_report_that_cannot_be_written_leaves_the_test_as_it_is(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_program=FOLDER_GOES)
    result = pytester.runpytest_subprocess("--armature-report", "out", *workers, *options())
    result.assert_outcomes(passed=1, failed=1)
    told = [line for line in result.outlines if "its report can't be written: FileNotFoundError" in line]
    assert len(told) == 2 and "test_whose_report_cannot_be_written" in told[0]
    assert any("of the test" in line for line in result.outlines)
    assert any("index.html can't be written: FileNotFoundError" in line for line in result.outlines)


def test_other_files_in_the_folder_are_left_out_and_told(program: pytest.Pytester) -> None:
    folder = program.path / "reports"
    folder.mkdir()
    (folder / "foreign.json").write_text('{"frames": 3}')
    (folder / "bytes.json").write_bytes(b"\xff")
    (folder / "folder.json").mkdir()
    result = program.runpytest_subprocess("-k", "unmarked", "--armature-report", "reports", *options())
    result.assert_outcomes(passed=1, deselected=7)
    index = (folder / "index.html").read_text()
    assert index.count("<tr>") == 2 and "test_unmarked" in index
    for name in ("foreign.json", "bytes.json", "folder.json"):
        assert f"<li>{name} is left out: " in index
        assert any(line.startswith(f"{name} is left out: ") for line in result.outlines)


def test_file_names_are_valid_and_differ() -> None:
    ids = ["a/b.py::test[x/y]", "a/b.py::test[x+y]", "a/b.py::test[x y]", 'a/b.py::test[<>:"|?*]']
    names = [file_name(one) for one in ids]
    assert len(set(names)) == len(ids) and all(Path(name).name == name for name in names)


def test_pytest_starts_without_torch(tmp_path: Path) -> None:
    code = "import sys, armature.reports.pytest_plugin; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(found.stdout.lower()) is False
