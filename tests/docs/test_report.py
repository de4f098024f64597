"""The page of figures is made from JSON; here from small made-up figures."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import typer
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from benchmarks import frontend, report, run, worker
from benchmarks.compilers import ROOT


def test_tables_put_numbers_to_the_right() -> None:
    text = report.table(["model", "ms"], [["LeNet", 1.234], ["GPT", 359.4], ["tiny", 0.0000123]])
    assert text.splitlines() == [
        "| model | ms |",
        "| --- | --: |",
        "| LeNet | 1.23 |",
        "| GPT | 359 |",
        "| tiny | 1e-05 |",
    ]


PAGE = ROOT / "docs" / "performance.md"


def filled(page: Path, files: dict[str, str]) -> Result:
    """`python -m benchmarks.report` with these files, by the names of its options."""
    app = typer.Typer()
    app.command()(report.main)
    return CliRunner().invoke(
        app, [*itertools.chain(*((f"--{name}", file) for name, file in files.items())), "--page", str(page)]
    )


def written(folder: Path, name: str, data: Any) -> str:
    path = folder / name
    path.write_text(json.dumps(data))
    return str(path)


def test_a_page_holds_what_was_measured_and_why_something_was_not(tmp_path: Path) -> None:
    both = {"eager": 0.002, "torch.compile": 0.004, "armature": 0.001}
    measured = {
        "machine": "a machine",
        "rows": [
            {"key": ["steady", "LeNet", "infer"], "seconds": both, "speedup": {"torch.compile": 0.5, "armature": 2.0}},
            {"key": ["steady", "GPT", "infer"], "failed": "over 1200 s"},
            {"key": ["memory", "LeNet", "infer"], "bytes": {"eager": 2**22, "torch.compile": 2**21, "armature": 2**20}},
            {"key": ["memory", "GPT", "infer"], "failed": "over 900 s"},
            {"key": ["cold", "LeNet", "infer", "torch.compile"], "seconds": 8.0},
            {"key": ["cold", "LeNet", "infer", "armature"], "seconds": 2.0},
            {"key": ["overhead", "armature"], "bare_us": 4.0, "compiled_us": 5.0, "extra_us": 1.0},
            {"key": ["scaling", "chain", 200, "torch.compile"], "failed": "over 400 s"},
            {"key": ["scaling", "chain", 200, "armature"], "seconds": 3.0},
        ],
    }
    row = {
        "model": "LeNet", "mode": "infer", "graphs": 1, "breaks": 0, "operators": 9, "kernels": 4, "fused": 2,
        "extern": 3, "error": 1e-7, "compile_s": 1.5, "eager_ms": 4.0, "armature_ms": 2.0, "ratio": 2.0,
        "inductor_ms": 8.0,
    }  # fmt: skip
    demo = {"machine": {"device": "cpu", "torch": "2.13.0", "cores": 2}, "rows": [row]}
    gpu = {
        "machine": {"device": "a GPU", "torch": "2.11.0"},
        "models": [row],
        "launch": [{"launch": "armature", "us": 3.4}],
        "memory": [{"kernel": "copy", "armature_gb_s": 4000.0, "of_copy": 1.0}],
    }
    traced = {"torch.compile": {"graphs": 2, "breaks": 1, "seconds": 0.4}}
    traced["armature"] = {"graphs": 1, "breaks": 0, "seconds": 0.1}
    front = {
        "machine": "a machine",
        "overhead": {"extra": {"torch.compile": 40.26, "armature": 2.51}},
        "rows": [{"model": "example:LeNet", "mode": "infer", **traced}],
    }
    page = tmp_path / "page.md"
    shutil.copy(PAGE, page)
    written_files = (("run", measured), ("demo", demo), ("cuda", demo), ("gpu", gpu), ("frontend", front))
    done = filled(page, {name: written(tmp_path, name, data) for name, data in written_files})
    assert done.exit_code == 0 and "a machine" in done.output
    text = page.read_text()
    assert text.count("<!-- figures:") == PAGE.read_text().count("<!-- figures:")
    assert "| LeNet | infer | 2.00 | 4.00 | 1.00 | 0.50 | 2.00 |" in text
    assert "| GPT | infer | over 1200 s |" in text
    assert "| LeNet | infer | 4.00 | 2.00 | 1.00 | 0.50 |" in text
    assert "| GPT | infer | over 900 s |" in text
    assert "| LeNet | infer | 2 + 1 | 1 + 0 | 400 | 100 | 0.25 |" in text
    assert "| LeNet | infer | 8.00 | 2.00 | 0.25 |" in text
    assert "| chain | 200 | over 400 s | 3.00 | - |" in text
    assert "| LeNet | infer | 1 | 0 | 9 | 4 | 2 | 3 | 1e-07 | 1.50 | 4.00 | 2.00 | 2.00 |" in text
    assert "| copy | 4000 | 1.00 | - |" in text


def test_a_figure_that_is_missing_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    shutil.copy(PAGE, page)
    done = filled(page, {"gpu": written(tmp_path, "e", {"machine": "m"})})
    assert isinstance(done.exception, KeyError) and "memory" in str(done.exception)
    assert page.read_text() == PAGE.read_text()


def test_figures_of_one_file_leave_the_rest_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n\n{report.mark('front_end', 'older')}\n\nBetween.\n\n{report.mark('demo', 'same')}\n")
    done = filled(page, {"frontend": written(tmp_path, "f", {"machine": "m", "rows": []})})
    assert done.exit_code == 0
    assert "older" not in page.read_text() and "| **geometric mean** |" in page.read_text()
    assert page.read_text().startswith("Before.") and page.read_text().endswith(report.mark("demo", "same") + "\n")


def test_a_run_of_some_parts_leaves_the_tables_of_others(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{report.mark('overhead', 'older')}\n\n{report.mark('cold', 'same')}\n")
    rows = [{"key": ["overhead", "armature"], "bare_us": 4.0, "compiled_us": 5.0, "extra_us": 1.0}]
    done = filled(page, {"run": written(tmp_path, "r", {"machine": "m", "rows": rows})})
    assert done.exit_code == 0 and done.output.splitlines()[-1].endswith("page.md: overhead")
    assert "| armature | 4.00 | 5.00 | 1.00 |" in page.read_text() and report.mark("cold", "same") in page.read_text()


def test_figures_without_a_place_are_refused() -> None:
    with pytest.raises(ValueError, match="no marks for cold"):
        report.fill(report.mark("steady", ""), {"cold": ""})


@pytest.mark.slow
def test_the_front_ends_figures_are_those_the_page_reads(tmp_path: Path) -> None:
    wanted = tmp_path / "front.json"
    command = [sys.executable, "-m", "benchmarks.frontend", "--models", "example:LinearRegression", "--rounds", "1"]
    subprocess.run([*command, "--json", str(wanted)], cwd=ROOT, check=True, capture_output=True, timeout=600)
    front = json.loads(wanted.read_text())
    assert "| LinearRegression | infer | 1 + 0 | 1 + 0 |" in report.front_end(front["rows"])
    assert set(front["overhead"]["extra"]) == {"torch.compile", "armature"}


def test_front_ends_within_the_noise_of_an_eager_call_have_no_ratio() -> None:
    def row(name: str, theirs: float, ours: float) -> dict[str, Any]:
        counted = {"graphs": 1, "breaks": 0, "right": True}
        times = {"torch.compile": theirs, "armature": ours}
        return {"model": name, "mode": "infer", **{c: {**counted, "seconds": t} for c, t in times.items()}}

    rows = [row("quick", 0.4, -0.01), row("slow", 0.4, 0.1), {"model": "lost", "mode": "infer", "failed": "over 900 s"}]
    lines = report.front_end(rows).splitlines()
    assert [line.split("|")[-2].strip() for line in lines[2:]] == ["-", "0.25", "-", "0.25"]
    table = frontend.models_table({(r["model"], r["mode"]): r for r in rows})
    assert list(table.columns[6].cells) == ["-", "0.25", "", "0.25"]


def test_peak_memory_counts_what_is_held_at_once() -> None:
    x = torch.ones(2**18)  # 1 MiB

    def two_at_once() -> torch.Tensor:
        y = x.exp()
        z = y.exp()
        del y
        return z.exp()

    assert worker.peak_bytes(two_at_once) == 2 * 2**20


def test_peak_memory_counts_no_release_of_what_was_there_before() -> None:
    x = torch.ones(2**18)
    held = []

    def keep() -> None:
        held.append(x.exp())

    def release_and_make() -> None:
        held.clear()
        x.exp()

    assert worker.peak_bytes(keep) == 2**20
    assert worker.peak_bytes(release_and_make) == 2**20  # the allocator knows the size of what the last profile saw


def test_processes_side_by_side_have_cores_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(10, 17)))
    shares = [run.cores_of(place, 3) for place in range(3)]
    assert shares == [{10, 11}, {12, 13}, {14, 15}]
    assert run.cores_of(8, 9) == set(range(10, 17))  # more processes than cores


def test_measurements_come_in_the_order_in_which_they_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(kind: str, timeout: float, cores: set[int] | None = None, **arguments: Any) -> dict[str, Any]:
        return {"failed": "over 400 s"} if arguments.get("steps") == 50 else {"seconds": 1.0}

    monkeypatch.setattr(run, "measure", measure)
    todo = run.jobs(["scaling", "cold"], ["LeNet", "GPT"], ["infer"], ["eager", "armature"], 1.0)
    found = run.run_all(todo, 2, Console(quiet=True))
    assert [key[1] for key in found if key[0] == "cold"] == ["LeNet", "GPT"]
    chain = {key[2]: row for key, row in found.items() if key[:2] == ("scaling", "chain")}
    assert chain == {50: {"failed": "over 400 s"}} | {n: {"failed": "as above"} for n in (100, 200, 2000)}


def test_a_kept_cache_is_for_what_is_not_measured_in_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    folders: dict[str, str] = {}

    def started(command: list[str], env: dict[str, str], **_: Any) -> SimpleNamespace:
        folders[command[3]] = env["TORCHINDUCTOR_CACHE_DIR"]
        return SimpleNamespace(returncode=0, stdout="{}", stderr="")

    monkeypatch.setattr(run.subprocess, "run", started)
    parts = ["steady", "cold", "scaling", "overhead"]
    for job in run.jobs(parts, ["LeNet"], ["infer"], ["eager", "torch.compile"], 1.0, "/kept"):
        run.measure(**{name: value for name, value in job.items() if name != "key"})
    assert folders.keys() == set(parts)
    assert folders["steady"] == "/kept" and all(not folders[part].startswith("/kept") for part in parts[1:])


def test_a_run_keeps_what_it_has_and_starts_nothing_late(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(run, "measure", lambda **_: {"seconds": {"eager": 1.0}, "bytes": {"eager": 8}})
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    todo = run.jobs(["steady", "memory"], ["LeNet", "GPT", "VAE"], ["infer"], ["eager"], 1.0)
    kept: list[list[tuple[Any, ...]]] = []
    found = run.run_all(todo, 1, Console(quiet=True), 2.5, lambda results: kept.append(list(results)))
    both = [(part, "LeNet", "infer") for part in ("steady", "memory")]
    assert kept[0] == both and len(kept[-1]) == 6
    assert found["memory", "GPT", "infer"]["bytes"] == {"eager": 8}
    assert found["steady", "VAE", "infer"] == found["memory", "VAE", "infer"] == {"failed": "not started in time"}


def test_a_model_that_is_not_there_is_named() -> None:
    with pytest.raises(typer.BadParameter, match="no such models: LeNte; there are LeNet"):
        run.main(models="LeNte")


def test_a_graph_that_took_too_long_is_not_tried_larger() -> None:
    key = ("scaling", "chain", 50, "torch.compile")
    results: dict[tuple[Any, ...], Any] = {key: {"failed": "over 400 s"}}
    assert run.too_long_before(key, results) is None
    assert run.too_long_before(("scaling", "chain", 100, "torch.compile"), results) == {"failed": "as above"}
    assert run.too_long_before(("scaling", "chain", 100, "armature"), results) is None
    assert run.too_long_before(("scaling", "doubling", 12, "torch.compile"), results) is None
