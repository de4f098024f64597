"""The runner of the suite on several versions: which entries, which interpreter, what its table says."""

from __future__ import annotations

import importlib.util
import io
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
REPORT = """<testsuites>
<testsuite tests="12" failures="2" errors="1" skipped="3"/><testsuite tests="5" failures="0" errors="0" skipped="0"/>
</testsuites>"""


@pytest.fixture(scope="module")
def matrix() -> ModuleType:
    spec = importlib.util.spec_from_file_location("test_matrix_script", ROOT / "scripts" / "test_matrix.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # attrs looks names up there
    spec.loader.exec_module(module)
    return module


def program(path: Path, says: str, code: int = 0) -> Path:
    """An executable that prints a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says}\nexit {code}\n")
    path.chmod(0o755)
    return path


def shown(matrix: ModuleType, results: list[object]) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(matrix.table(results))
    return out.getvalue()


def test_entries(matrix: ModuleType) -> None:
    entry = matrix.Entry.parse("3.12-2.15.0")
    assert (entry.python, entry.torch, entry.name) == ("3.12", "2.15.0", "3.12-2.15.0")
    assert entry.environment == ROOT / ".venvs" / "3.12-2.15.0"


@pytest.mark.parametrize("text", ["3.12", "2.13.0", "3.12-2.13", "python3.12-2.13.0", ""])
def test_entries_that_are_none(matrix: ModuleType, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        matrix.main([text, "--plugins", "cpu_cpp"])
    assert "as in 3.12-2.13.0" in capsys.readouterr().err


def test_what_is_installed_is_tested(matrix: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "ENVIRONMENTS", tmp_path)
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    seen = tmp_path / "seen"
    program(tmp_path / "3.12-2.15.0" / "bin" / "python", f'"[$PYTHONPATH] $2" > {seen}')
    result = matrix.test(matrix.Entry.parse("3.12-2.15.0"), 1, [])
    assert seen.read_text() == "[] pytest\n" and result.outcome == matrix.PASSED


def test_an_interpreter_on_path_comes_first(matrix: ModuleType, tmp_path: Path) -> None:
    here = program(tmp_path / "bin" / "python3.12", "3.12")
    program(tmp_path / "pyenv" / "versions" / "3.12.4" / "bin" / "python", "3.12")
    assert matrix.interpreter("3.12", str(tmp_path / "bin"), tmp_path / "pyenv") == str(here)


def test_a_shim_of_a_version_that_is_not_active_is_passed_over(matrix: ModuleType, tmp_path: Path) -> None:
    program(tmp_path / "shims" / "python3.12", "command not found", code=127)
    program(tmp_path / "other" / "python3.12", "3.11")
    home = tmp_path / "pyenv" / "versions"
    program(home / "3.12.4" / "bin" / "python", "3.12")
    newest = program(home / "3.12.10" / "bin" / "python", "3.12")
    program(home / "3.12-dev" / "bin" / "python", "3.12")
    path = os.pathsep.join([str(tmp_path / "shims"), str(tmp_path / "other")])
    assert matrix.interpreter("3.12", path, tmp_path / "pyenv") == str(newest)


def test_no_interpreter(matrix: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "pyenv" / "versions" / "3.11.9" / "bin" / "python", "3.11")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    entry = matrix.Entry.parse("3.13-2.13.0")
    result = matrix.outcome_of(entry, (), 1, [])
    assert result.outcome == f"missing: no python3.13 on PATH or in {tmp_path / 'pyenv'}"
    assert matrix.main([entry.name, "--plugins", ""]) == 1


def test_environments_are_made_again_when_requirements_change(matrix: ModuleType, tmp_path: Path) -> None:
    stamp, source = tmp_path / ".installed", tmp_path / "pyproject.toml"
    source.touch()
    assert not matrix.is_current(stamp, [source])
    stamp.touch()
    os.utime(source, (1, 1))
    assert matrix.is_current(stamp, [source])
    os.utime(stamp, (0, 0))
    assert not matrix.is_current(stamp, [source])


def test_the_table(matrix: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    assert matrix.counts_of(report) == {}
    report.write_text(REPORT)
    counts = matrix.counts_of(report)
    assert counts == {"passed": 11, "failed": 3, "skipped": 3}
    failed = matrix.Result(matrix.Entry("3.12", "2.15.0"), "failed (pytest: 1)", counts)
    missing = matrix.Result(matrix.Entry("3.13", "2.13.0"), "missing: no python3.13")
    rows = [line.split("│") for line in shown(matrix, [failed, missing]).splitlines()]
    cells = [[cell.strip() for cell in row[1:-1]] for row in rows if len(row) == 8]
    assert cells == [
        ["3.12", "2.15.0", "11", "3", "3", "failed (pytest: 1)"],
        ["3.13", "2.13.0", "-", "-", "-", "missing: no python3.13"],
    ]


def test_what_follows_two_dashes_is_for_pytest(matrix: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def outcome_of(entry: object, plugins: tuple[str, ...], jobs: int, args: list[str]) -> object:
        given.append((plugins, jobs, args))
        return matrix.Result(entry, matrix.PASSED, {"passed": 1})

    monkeypatch.setattr(matrix, "outcome_of", outcome_of)
    command = ["3.11-2.13.0", "3.12-2.13.0", "--plugins", "cpu_cpp gpu_triton", "--jobs", "3", "--", "-k", "resume"]
    assert matrix.main(command) == 0
    assert given == [(("cpu_cpp", "gpu_triton"), 3, ["-k", "resume"])] * 2
