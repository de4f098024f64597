"""`armature explain`: its files and statuses, and what it makes of programs and folders that are bad."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import armature
from armature.breaks.types import BreakType
from armature.cli import explain
from armature.plugin_api import Call, collect, handles, hookimpl
from armature.plugins import manager
from armature.reports import schema
from armature.reports.record import End, Recording

PROGRAM = """
import sys
import torch

@torch.compile
def scaled(x):
    y = torch.relu(x) * 3
    if y.sum() > 0:
        return y + 1
    return y

scaled(torch.ones(3))
{more}
"""

Invoke = Callable[..., Any]


def app_of_explain() -> typer.Typer:
    """An app with the command, and another one so that it has a name."""
    app = typer.Typer()
    explain.register(app)
    app.command("none")(lambda: None)
    return app


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, more: str = "") -> Any:
        (tmp_path / "program.py").write_text(PROGRAM.replace("{more}", more))
        return CliRunner().invoke(app_of_explain(), ["explain", "program.py", *arguments])

    return call


def read(path: str = "record.json") -> Recording:
    return schema.from_json(Path(path).read_text(encoding="utf-8"))


def test_all_files_are_written_and_told(invoke: Invoke) -> None:
    files = ["deep/er/page.html", "record.json", "log.sarif", "trace.json"]
    result = invoke("--html", files[0], "--json", files[1], "--sarif", files[2], "--trace", files[3], "--github")
    assert result.exit_code == 0, result.output
    assert all(f"{os.sep}{file}" in result.output and Path(file).stat().st_size for file in files)
    assert "1 kernel," in result.output or "kernels" in result.output
    assert "::warning file=program.py,line=8,title=" in result.output
    recording = read()
    assert recording.program == "program.py" and recording.kernels and recording.end is End.ENDED
    named = {event["name"] for event in json.loads(Path("trace.json").read_text())["traceEvents"] if event["ph"] == "X"}
    assert {kernel.name for kernel in recording.kernels} <= named


def test_capture_only_compiles_no_kernel(invoke: Invoke) -> None:
    result = invoke("--capture-only", "--json", "record.json")
    assert result.exit_code == 0, result.output
    recording = read()
    assert not recording.kernels and {graph.kind for graph in recording.graphs} == {"captured"}
    assert len(recording.breaks) == 1


def test_memory_is_drawn_over_time(invoke: Invoke) -> None:
    result = invoke("--memory")
    assert result.exit_code == 0, result.output
    drawn = result.stdout.partition("Memory over time")[2]
    assert "the process" in drawn and "█" in drawn and "at most 12 B" in drawn and "step" in drawn
    assert "Memory over time" not in invoke().stdout


def test_a_misspelt_option_before_the_program_is_an_error(invoke: Invoke) -> None:
    call = ["explain", "--fail-on-brake", "--html", "page.html", "program.py", "--own"]
    (Path.cwd() / "program.py").write_text("import sys; print(sys.argv[1:])")
    result = CliRunner().invoke(app_of_explain(), call)
    assert result.exit_code == 2 and "did you mean --fail-on-break?" in result.output
    result = CliRunner().invoke(app_of_explain(), [word for word in call if word != "--fail-on-brake"])
    assert result.exit_code == 0 and "['--own']" in result.stdout, "options after the program are its own"
    assert Path("page.html").exists()


def test_a_break_fails_the_run_unless_the_baseline_has_it(invoke: Invoke) -> None:
    assert invoke("--json", "record.json").exit_code == 0
    result = invoke("--fail-on-break")
    assert result.exit_code == 1 and "program.py:8: " in result.output
    assert invoke("--fail-on-break", "--baseline", "record.json").exit_code == 0
    assert invoke("--fail-on-recompile").exit_code == 0
    other = "scaled(torch.ones(4))\ntorch.compile(lambda x: x.tolist())(torch.ones(2))"
    again = invoke("--fail-on-break", "--fail-on-recompile", "--baseline", "record.json", more=other)
    assert again.exit_code == 1 and "x was a tensor float32[3]" in again.output and "tolist" in again.output
    told = [line for line in again.output.splitlines() if line.startswith("program.py:")]
    assert any(line.startswith("program.py:14: ") for line in told)
    assert not any(line.startswith("program.py:8: ") for line in told)


@pytest.mark.parametrize(
    ("more", "status", "end", "shown"),
    [
        ("sys.exit(3)", 3, End.EXITED, "left with status 3"),
        ("sys.exit('over')", 1, End.EXITED, "left with status 1"),
        ("raise ValueError('of the program')", 1, End.RAISED, "ValueError: of the program"),
        ("raise KeyboardInterrupt", 130, End.RAISED, "KeyboardInterrupt"),
        ("exec('def (')", 1, End.RAISED, "SyntaxError"),
        ("armature = __import__('armature'); armature.reset()", 0, End.ENDED, "1 break,"),
        ("import os; os.chdir('/')", 0, End.ENDED, "1 break,"),
    ],
)
def test_however_the_program_ends_the_report_is_written(
    invoke: Invoke, tmp_path: Path, more: str, status: int, end: End, shown: str
) -> None:
    result = invoke("--json", str(tmp_path / "record.json"), "--html", "page.html", more=more)
    assert result.exit_code == status, result.output
    recording = read(str(tmp_path / "record.json"))
    assert (recording.end, recording.status) == (end, status) and len(recording.breaks) == 1
    assert shown in result.output and (tmp_path / "page.html").is_file()
    assert "runpy" not in recording.error and "cli/" not in recording.error


@pytest.mark.parametrize("option", ["--html", "--json", "--sarif", "--trace"])
def test_a_place_that_cannot_be_written_is_told_before_the_program_runs(invoke: Invoke, option: str) -> None:
    Path("file").write_text("")
    for path in ("file/report", "."):
        result = invoke(option, path, more="print('it ran')")
        assert result.exit_code == 2 and "[A241]" in result.output and "it ran" not in result.output


def test_a_folder_that_goes_while_the_program_runs_loses_that_file_only(invoke: Invoke, tmp_path: Path) -> None:
    gone = "import shutil; shutil.rmtree('out')"
    result = invoke("--html", "out/page.html", "--json", "record.json", more=gone)
    assert result.exit_code == 2 and "[A241]" in result.output
    assert "1 break," in result.output and len(read().breaks) == 1


def test_a_program_that_is_not_there_leaves_nothing(invoke: Invoke, tmp_path: Path) -> None:
    for path in ("nowhere.py", "."):
        result = CliRunner().invoke(app_of_explain(), ["explain", path, "--html", "out/page.html"])
        assert result.exit_code == 2 and "[A226]" in result.output and not Path("out").exists()


def test_an_error_of_armature_that_the_program_raises_first_has_its_report(invoke: Invoke) -> None:
    Path("program.py").write_text("import armature\narmature.compile(print, mode='no such mode')\n")
    result = CliRunner().invoke(app_of_explain(), ["explain", "program.py", "--json", "record.json"])
    assert result.exit_code == 1 and "no such mode" in result.output
    assert read().end is End.RAISED and "program.py" in read().error


def test_a_pipe_that_is_closed_loses_no_file(invoke: Invoke) -> None:
    assert invoke().exit_code == 0
    start = "import sys; from armature.cli.app import main; sys.argv[0] = 'armature'; main()"
    command = [sys.executable, "-c", start, "explain", "program.py", "--json", "record.json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.close()
        assert b"Traceback" not in running.stderr.read()
    assert len(read().breaks) == 1


def test_a_baseline_that_is_none(invoke: Invoke) -> None:
    for text, code in ((None, "[A242]"), ("not json", "[A240]"), ("{}", "[A240]")):
        if text is not None:
            Path("base.json").write_text(text)
        result = invoke("--baseline", "base.json")
        assert result.exit_code == 2 and code in result.output


def test_a_program_that_is_no_python_at_all(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("--json", "record.json", more="def (")
    assert result.exit_code == 1 and "SyntaxError" in result.output
    assert read().end is End.RAISED and not read().frames


def odd(x: Any) -> Any:
    return x


@handles(odd)
def breaks_oddly(call: Call, x: Any) -> Any:
    call.graph_break("odd", reason="why")


class Odd:
    """A plugin whose break type has a template that can't be filled in and an observer that fails."""

    @hookimpl
    def armature_break_types(self) -> list[BreakType]:
        return [BreakType("odd", "Odd", "It is {reason.nowhere:>{width}} and {0}.", ("{",))]

    @hookimpl
    def armature_handlers(self) -> list[Any]:
        return collect(sys.modules[__name__])

    @hookimpl
    def armature_graph_break(self, event: object) -> None:
        raise RuntimeError("an observer that fails")


def test_a_broken_break_type_of_a_plugin_is_reported_and_loses_nothing(invoke: Invoke) -> None:
    more = f"import sys; odd = sys.modules[{__name__!r}].odd; torch.compile(lambda x: odd(x) + 1)(torch.ones(2))"
    with manager().registered(Odd(), "odd-plugin"), armature.config.patch(strict=False):
        result = invoke("--json", "record.json", "--html", "page.html", "--sarif", "log.sarif", "--github", more=more)
    assert result.exit_code == 0, result.output
    recording = read()
    assert [one.type for one in recording.breaks][-1] == "odd" and recording.breaks[-1].hints == ("{",)
    assert any("odd-plugin" in problem and "an observer that fails" in problem for problem in recording.problems)
    assert "It is {reason.nowhere" in result.output


class Raises:
    """A plugin whose break types can't be made."""

    @hookimpl
    def armature_break_types(self) -> list[BreakType]:
        return [BreakType("odd", "Odd", "", ())]

    @hookimpl
    def armature_handlers(self) -> list[Any]:
        return collect(sys.modules[__name__])


def test_break_types_that_a_plugin_fails_to_give_are_told_as_its_fault(invoke: Invoke) -> None:
    more = f"import sys; odd = sys.modules[{__name__!r}].odd; torch.compile(lambda x: odd(x) + 1)(torch.ones(2))"
    with manager().registered(Raises(), "odd-plugin"), armature.config.patch(strict=False):
        result = invoke("--json", "record.json", more=more)
    assert result.exit_code == 0, result.output
    assert read().breaks[-1].type == "odd" and "reason: why" in read().breaks[-1].explanation
    assert any("odd-plugin" in problem and "armature_break_types" in problem for problem in read().problems)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir(mode=0o500)
    result = invoke("--json", "shut/record.json")
    assert result.exit_code == 2 and "[A241]" in result.output
