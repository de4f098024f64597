"""`python -m benchmarks.report` puts tables into the page, and leaves what people wrote there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import report

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


def test_figures_take_the_place_of_older_ones() -> None:
    page = f"Before.\n\n{report.mark('cold', 'before')}\n\nBetween.\n\n{report.mark('steady', 'kept')}\n"
    assert report.fill(page, {"cold": "| new |\n| --- |"}) == page.replace("before", "| new |\n| --- |")


def test_figures_without_a_place_are_refused() -> None:
    with pytest.raises(ValueError, match="no marks for cold"):
        report.fill(report.mark("steady", ""), {"cold": ""})


def test_the_page_has_a_place_for_all_that_a_run_measures(tmp_path: Path) -> None:
    page, run = tmp_path / "page.md", tmp_path / "run.json"
    shutil.copy(PAGE, page)
    times = {"eager": 0.002, "torch.compile": 0.004, "armature": 0.001}
    speedup = {"torch.compile": 0.5, "armature": 2.0}
    rows = [
        {"key": ["steady", "Tiny", "infer"], "seconds": times, "speedup": speedup},
        {"key": ["memory", "Tiny", "infer"], "bytes": {"eager": 2**21, "torch.compile": 2**20, "armature": 2**20}},
        {"key": ["cold", "Tiny", "infer", "torch.compile"], "seconds": 4.0},
        {"key": ["cold", "Tiny", "infer", "armature"], "seconds": 1.0},
    ]
    run.write_text(json.dumps({"machine": "a machine", "rows": rows}))
    app = typer.Typer()
    app.command()(report.main)
    done = CliRunner().invoke(app, ["--run", str(run), "--page", str(page)])
    assert done.exit_code == 0 and "a machine" in done.output
    written = page.read_text()
    assert "| Tiny | infer | 2.00 | 4.00 | 1.00 | 0.50 | 2.00 |" in written  # steady state
    assert "| Tiny | infer | 2.00 | 1.00 | 1.00 | 1.00 |" in written  # memory
    assert "| Tiny | infer | 4.00 | 1.00 | 0.25 |" in written  # cold compile
    assert "| LeNet | infer | 1 | 0 |" in written  # the demo's table, which no file was given for
    assert written.count("<!-- figures:") == PAGE.read_text().count("<!-- figures:")
