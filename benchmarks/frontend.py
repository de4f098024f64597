"""`python -m benchmarks.frontend`: armature's front end against torch.compile's, with backend="eager".

Graphs and breaks of each model of the zoo, seconds of tracing, and the overhead of a call. Needs transformers: `pip
install torch-armature[bench]`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.compilers import ROOT
from benchmarks.frontend_worker import COMPILERS, MODES
from benchmarks.models import ZOO
from benchmarks.run import geometric_mean

Rows = dict[str, Any]
LIMIT = 900.0  # seconds for one model in one mode


def measure(kind: str, **arguments: Any) -> Rows:
    """One measurement in a fresh process. {"failed": why} if there was no result."""
    command = [sys.executable, "-m", "benchmarks.frontend_worker", kind, json.dumps(arguments)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"over {LIMIT:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    result: Rows = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def ratio(row: Rows) -> float | None:
    """Armature's tracing time over torch.compile's. None if either is within the noise of an eager call."""
    theirs, ours = (row[c]["seconds"] for c in COMPILERS)
    return ours / theirs if min(theirs, ours) > 0 else None


def models_table(results: dict[tuple[str, str], Rows]) -> Table:
    """A line for each model and mode, and the geometric mean."""
    table = Table(title='Front ends, backend="eager"; graphs+breaks, and milliseconds of tracing beyond an eager call')
    columns = ("model", "mode", *COMPILERS, *(f"{c} ms" for c in COMPILERS), "ratio", "")
    for column in columns:
        table.add_column(column, justify="left" if column in ("model", "mode", "") else "right")
    ratios = []
    for (name, mode), row in results.items():
        if "failed" in row:
            table.add_row(name, mode, *[""] * 5, row["failed"][:60], style="red")
            continue
        theirs, ours = (row[c] for c in COMPILERS)
        found = ratio(row)
        ratios += [] if found is None else [found]
        more = ours["graphs"] > theirs["graphs"] or ours["breaks"] > theirs["breaks"]
        notes = ["more graphs"] * more + ["wrong"] * (not ours["right"])
        counts = (f"{row[c]['graphs']}+{row[c]['breaks']}" for c in COMPILERS)
        times = (f"{row[c]['seconds'] * 1e3:.0f}" for c in COMPILERS)
        table.add_row(
            name,
            mode,
            *counts,
            *times,
            "-" if found is None else f"{found:.2f}",
            ", ".join(notes),
            style="red" if notes else "",
        )
    table.add_row("geometric mean", *[""] * 5, f"{geometric_mean(ratios):.2f}", "", style="bold")
    return table


def overhead_table(row: Rows) -> Table:
    """Microseconds of a call of a tiny function."""
    table = Table(title="A call of `x + 1` on 4 numbers, microseconds")
    for column in ("", "call", "beyond the bare call"):
        table.add_column(column, justify="right" if column else "left")
    if "failed" in row:
        table.add_row(row["failed"])
        return table
    for name, value in row["microseconds"].items():
        extra = row["extra"].get(name)
        table.add_row(name, f"{value:.2f}", "" if extra is None else f"{extra:.2f}")
    return table


def main(
    models: Annotated[str, typer.Option(help="comma-separated names; all by default")] = ",".join(ZOO),
    modes: Annotated[str, typer.Option(help="infer, train")] = ",".join(MODES),
    rounds: Annotated[int, typer.Option(help="how often each compiler traces each model")] = 5,
    json_file: Annotated[Path | None, typer.Option("--json", help="write every figure here")] = None,
) -> None:
    """Measure and print."""
    console = Console()
    todo = [(name, mode) for name in models.split(",") for mode in modes.split(",")]
    results: dict[tuple[str, str], Rows] = {}
    progress_columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*progress_columns, console=console) as progress:
        task = progress.add_task("measuring", total=len(todo) + 1)
        calls = measure("overhead")
        progress.advance(task)
        for name, mode in todo:
            progress.update(task, description=f"{name} {mode}")
            results[name, mode] = measure("model", name=name, mode=mode, rounds=rounds)
            progress.advance(task)
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
    if json_file:
        rows = [{"model": name, "mode": mode, **row} for (name, mode), row in results.items()]
        json_file.write_text(json.dumps({"machine": machine, "overhead": calls, "rows": rows}, indent=1) + "\n")
    console.print(models_table(results), overhead_table(calls))
    console.print(f"{machine}, Python {platform.python_version()}")


if __name__ == "__main__":
    typer.run(main)
