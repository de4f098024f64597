"""`run`, `explain`, `breaks` and `code` on small programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

import armature
from armature.cli import breaks, code, explain, run
from armature.cli.scripts import as_torch_compile

PROGRAM = """
import sys
import torch
from armature import graph_break

@torch.compile(mode="fastest", options={"anything": 1})
def scaled(x):
    return torch.relu(x) * 3 + 1

@torch.compile(backend="eager")
def broken(x):
    graph_break("for the test")
    return x

print("sum", float(scaled(torch.ones(3)).sum()), sys.argv[1:])
broken(torch.ones(3))
if "--fail" in sys.argv:
    sys.exit(3)
"""

Invoke = Callable[..., Any]
pytestmark = pytest.mark.filterwarnings("ignore:the mode 'fastest'")


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.setenv("COLUMNS", "200")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    app = typer.Typer()
    for module in (run, explain, breaks, code):
        module.register(app)

    def call(*arguments: str) -> Any:
        return CliRunner().invoke(app, [a.replace("PROGRAM", str(program)) for a in arguments])

    return call


def test_run_leaves_the_program_as_it_is_and_prints_what_was_compiled(invoke: Invoke) -> None:
    theirs, ours, argv, path = torch.compile, armature.compile, list(sys.argv), list(sys.path)
    result = invoke("run", "PROGRAM", "--size", "4")
    assert result.exit_code == 0, result.output
    assert "sum 12.0 ['--size', '4']" in result.output
    assert "scaled" in result.output and "program.py:6" in result.output and "1 break," in result.output
    assert (torch.compile, armature.compile, sys.argv, sys.path) == (theirs, ours, argv, path)


def test_run_passes_the_status_on(invoke: Invoke) -> None:
    assert invoke("run", "PROGRAM", "--fail").exit_code == 3


@pytest.mark.parametrize("command", ["run", "explain", "breaks", "code"])
def test_a_program_that_is_not_there(invoke: Invoke, command: str) -> None:
    result = invoke(command, "nowhere.py")
    assert result.exit_code == 2 and "nowhere.py" in result.output


def test_explain_tells_graphs_and_breaks(invoke: Invoke, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = invoke("explain", "PROGRAM", "--html", str(page), "--guards")
    assert result.exit_code == 0, result.output
    assert "1 graph, 1 break," in result.output and "x is a tensor float32[3]" in result.output
    assert "scaled" in page.read_text()


def test_breaks_of_a_program(invoke: Invoke) -> None:
    result = invoke("breaks", "PROGRAM")
    assert "1 graph breaks" in result.output and "program.py:12" in result.output


def test_the_catalogue_of_breaks(invoke: Invoke) -> None:
    result = invoke("breaks")
    assert "kinds of graph break" in result.output


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        ("fx", "relu"),
        ("aten", "aten.relu.default"),
        ("loops", "def scaled"),
        ("plan", "scaled"),
        ("kernels", "scaled"),
        ("wrapper", "def call("),
    ],
)
def test_code_prints_each_stage(invoke: Invoke, stage: str, text: str) -> None:
    result = invoke("code", "PROGRAM", "--stage", stage)
    assert result.exit_code == 0, result.output
    assert text in result.output


def test_an_unknown_mode_is_left_out_and_told() -> None:
    redirected = as_torch_compile(armature.compile)
    with pytest.warns(armature.ArmatureWarning, match="the mode 'fastest' is not there in armature") as caught:
        compiled = redirected(lambda x: x + 1, mode="fastest")
    assert caught[0].filename == __file__
    assert compiled(torch.zeros(2)).tolist() == [1, 1]
