"""`python -m benchmarks.run`: eager, torch.compile and armature on the models of benchmarks.models; tables, and JSON.

Steady state and memory are measured alternately in one process per model; cold compiles in fresh processes with fresh
caches. With --jobs, several processes are measured in parallel, each on cores of its own. The JSON has each figure as
soon as it is measured, so a run that is stopped, or ends at --limit, keeps what it has.
"""

from __future__ import annotations

import json
import math
import os
import platform
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.compilers import COMPILERS, ROOT
from benchmarks.models import EXAMPLES, MEASURED

PARTS = ("steady", "cold", "memory", "overhead", "scaling")
SCALING = {"chain": (50, 100, 200, 2000), "doubling": (6, 12, 24, 48)}

Rows = dict[str, Any]
Results = dict[tuple[Any, ...], Rows]


def cores_of(place: int, places: int) -> set[int]:
    """The cores for one of several processes measured in parallel: an equal share of those available."""
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // places)
    return set(cores[place * each : (place + 1) * each]) or set(cores)


def measure(kind: str, timeout: float, cores: set[int] | None = None, kept: str = "", **arguments: Any) -> Rows:
    """One measurement in a fresh process on those cores, with fresh caches, or torch.compile's cache in the folder
    `kept`. {"failed": why} if there was no result."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {
            "TORCHINDUCTOR_CACHE_DIR": kept or f"{cache}/incumbent",
            "ARMATURE_CACHE_DIR": f"{cache}/armature",
        }
        command = [sys.executable, "-m", "benchmarks.worker", kind, json.dumps(arguments)]
        if cores:  # before torch counts them
            environment["OMP_NUM_THREADS"] = str(len(cores))
            command = ["taskset", "--cpu-list", ",".join(map(str, sorted(cores))), *command]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"over {timeout:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    result: Rows = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def jobs(
    parts: list[str], models: list[str], modes: list[str], compilers: list[str], budget: float, kept: str = ""
) -> list[Rows]:
    """Every measurement to make: a key, and keyword arguments of `measure`. One mode of all models precedes the next,
    so that a run that ends early has whole modes. What takes its time in compiling has fresh caches always."""
    out: list[Rows] = []
    if "steady" in parts:
        out += [
            {"key": ("steady", m, mode), "kind": "steady", "timeout": 1200.0}
            | {"name": m, "mode": mode, "compilers": compilers, "budget": budget, "memory_too": "memory" in parts}
            | {"kept": kept}
            for mode in modes
            for m in models
        ]
    others = [c for c in compilers if c != "eager"]
    if "memory" in parts and "steady" not in parts:
        out += [
            {"key": ("memory", m, mode), "kind": "memory", "timeout": 900.0}
            | {"name": m, "mode": mode, "compilers": compilers, "kept": kept}
            for mode in modes
            for m in models
        ]
    if "cold" in parts:
        out += [
            {"key": ("cold", m, mode, c), "kind": "cold", "timeout": 900.0, "name": m, "mode": mode, "compiler": c}
            for mode in modes
            for m in models
            for c in others
        ]
    if "overhead" in parts:
        out += [{"key": ("overhead", c), "kind": "overhead", "timeout": 300.0, "compiler": c} for c in others]
    if "scaling" in parts:
        out += [
            {"key": ("scaling", graph, steps, c), "kind": "scaling", "timeout": 400.0}
            | {"graph": graph, "steps": steps, "compiler": c}
            for graph, sizes in SCALING.items()
            for steps in sizes
            for c in others
        ]
    return out


def too_long_before(key: tuple[Any, ...], results: Results) -> Rows | None:
    """The failure, if a compiler took too long for this graph at a smaller size."""
    if key[0] != "scaling":
        return None
    kind, graph, steps, compiler = key
    smaller = [results.get((kind, graph, n, compiler), {}) for n in SCALING[graph] if n < steps]
    return next(({"failed": "as above"} for row in smaller if "failed" in row), None)


def figure(row: Rows | None, *path: str, scale: float = 1.0, digits: int = 2) -> str:
    """A number from a measurement, or the reason why there is none."""
    if row is None:
        return "-"
    if "failed" in row:
        return str(row["failed"])[:40]
    value: Any = row
    for part in path:
        value = value[part]
    return f"{value * scale:.{digits}f}"


def geometric_mean(values: list[float]) -> float:
    """Geometric mean; NaN for no values."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def steady_table(results: Results, compilers: list[str]) -> Table:
    table = Table(title="Steady state: milliseconds a call, and speed against eager (more is better)")
    table.add_column("model")
    table.add_column("mode")
    for c in compilers:
        table.add_column(f"{c} ms", justify="right")
    others = [c for c in compilers if c != "eager"]
    for c in others:
        table.add_column(f"{c} x", justify="right")
    speedups: dict[str, list[float]] = {c: [] for c in others}
    for key, row in results.items():
        if key[0] != "steady":
            continue
        cells = [figure(row, "seconds", c, scale=1e3) for c in compilers]
        cells += [figure(row, "speedup", c) for c in others]
        table.add_row(key[1], key[2], *cells)
        for c in others:
            if "failed" not in row:
                speedups[c].append(row["speedup"][c])
    means = [f"{geometric_mean(speedups[c]):.2f}" for c in others]
    table.add_row("geometric mean", "", *["" for _ in compilers], *means, style="bold")
    return table


def cold_table(results: Results, others: list[str]) -> Table:
    table = Table(title="Cold compile: seconds of the first call, fresh process and caches")
    for column in ("model", "mode", *others, "armature / torch.compile"):
        table.add_column(column, justify="left" if column in ("model", "mode") else "right")
    ratios: list[float] = []
    for name, mode in dict.fromkeys(key[1:3] for key in results if key[0] == "cold"):
        rows = {c: results.get(("cold", name, mode, c)) for c in others}
        ours, theirs = rows.get("armature"), rows.get("torch.compile")
        ratio = ""
        if ours and theirs and "failed" not in ours and "failed" not in theirs:
            ratios.append(ours["seconds"] / theirs["seconds"])
            ratio = f"{ratios[-1]:.2f}"
        table.add_row(name, mode, *(figure(rows[c], "seconds") for c in others), ratio)
    table.add_row("geometric mean", "", *["" for _ in others], f"{geometric_mean(ratios):.2f}", style="bold")
    return table


def memory_table(results: Results, compilers: list[str]) -> Table:
    table = Table(title="Peak memory of a call, MiB beyond what was there before")
    for column in ("model", "mode", *compilers, "armature / torch.compile"):
        table.add_column(column, justify="left" if column in ("model", "mode") else "right")
    ratios: list[float] = []
    for key, row in results.items():
        if key[0] != "memory":
            continue
        ratio = ""
        if row.get("bytes", {}).get("torch.compile") and row["bytes"].get("armature"):
            ratios.append(row["bytes"]["armature"] / row["bytes"]["torch.compile"])
            ratio = f"{ratios[-1]:.2f}"
        table.add_row(*key[1:3], *(figure(row, "bytes", c, scale=2**-20) for c in compilers), ratio)
    table.add_row("geometric mean", "", *["" for _ in compilers], f"{geometric_mean(ratios):.2f}", style="bold")
    return table


def overhead_table(results: Results) -> Table:
    table = Table(title="Call overhead of `x + 1` on 4 numbers, microseconds")
    for column in ("compiler", "bare", "compiled", "extra"):
        table.add_column(column, justify="left" if column == "compiler" else "right")
    for key, row in results.items():
        if key[0] == "overhead":
            table.add_row(key[1], *(figure(row, f) for f in ("bare_us", "compiled_us", "extra_us")))
    return table


def scaling_table(results: Results, others: list[str]) -> Table:
    table = Table(title="Compile time as the graph grows: seconds of the first call")
    for column in ("graph", "steps", *others):
        table.add_column(column, justify="left" if column == "graph" else "right")
    for graph, steps in dict.fromkeys(key[1:3] for key in results if key[0] == "scaling"):
        cells = (figure(results.get(("scaling", graph, steps, c)), "seconds") for c in others)
        table.add_row(graph, str(steps), *cells)
    return table


def by_key(todo: Sequence[Rows], keys: Sequence[tuple[Any, ...]], rows: Mapping[int, Rows]) -> Results:
    """What was measured, in the requested order: a row each, or two where memory was measured in the same process."""
    found: Results = {}
    for at, row in sorted(rows.items()):
        found[keys[at]] = row
        if todo[at].get("memory_too"):
            found["memory", *keys[at][1:]] = row
    return dict(sorted(found.items(), key=lambda item: item[0][0] == "memory"))


def run_all(
    todo: list[Rows],
    places: int,
    console: Console,
    limit: float = math.inf,
    keep: Callable[[Results], None] = lambda results: None,
) -> Results:
    """The measurements, `places` of them in parallel, in the requested order. None is started after `limit` seconds;
    `keep` gets what there is after each."""
    keys = [job.pop("key") for job in todo]
    rows: dict[int, Rows] = {}
    deadline = time.monotonic() + limit
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    for place in range(places):
        free.put(place)

    def one(job: Rows, of: int = places) -> Rows:
        if time.monotonic() > deadline:
            return {"failed": "not started in time"}
        place = free.get()
        try:
            return measure(**job, cores=cores_of(place, of) if of > 1 else None)
        finally:
            free.put(place)

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress, ThreadPoolExecutor(places) as pool:
        task = progress.add_task("measuring", total=len(todo))

        def done(at: int, row: Rows) -> None:
            rows[at] = row
            progress.update(task, description=" ".join(map(str, keys[at])), advance=1)
            keep(by_key(todo, keys, rows))

        running = {pool.submit(one, job): at for at, job in enumerate(todo) if keys[at][0] != "scaling"}
        for future in as_completed(running):
            done(running[future], future.result())
        # A graph that took too long at one size is not tried at the next, so these run one after another.
        for at, job in enumerate(todo):
            if keys[at][0] == "scaling":
                done(at, too_long_before(keys[at], by_key(todo, keys, rows)) or one(job, 1))
    return by_key(todo, keys, rows)


def main(
    parts: Annotated[str, typer.Option(help=f"comma-separated: {', '.join(PARTS)}")] = ",".join(PARTS),
    models: Annotated[str, typer.Option(help="comma-separated names; all by default, and `cold` the examples")] = "",
    modes: Annotated[str, typer.Option(help="infer, train")] = "infer,train",
    compilers: Annotated[str, typer.Option(help="which to compare; eager is always measured")] = ",".join(COMPILERS),
    budget: Annotated[float, typer.Option(help="seconds of steady-state measuring a model")] = 4.0,
    jobs_at_once: Annotated[int, typer.Option("--jobs", help="parallel measurements, each on its share of cores")] = 1,
    limit: Annotated[float, typer.Option(help="seconds after which no measurement is started; 0: no limit")] = 0,
    kept: Annotated[str, typer.Option("--keep-cache", help="keep torch.compile's cache here from run to run")] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="write every figure here")] = None,
) -> None:
    """Measure and print."""
    console = Console()
    names = [name for name in models.split(",") if name]
    if unknown := set(names) - set(MEASURED):
        raise typer.BadParameter(f"no such models: {', '.join(sorted(unknown))}; there are {', '.join(MEASURED)}")
    if jobs_at_once > 1 and not shutil.which("taskset"):
        raise typer.BadParameter("--jobs needs the command taskset (util-linux), which gives each its own cores")
    chosen = [c for c in COMPILERS if c in compilers.split(",") or c == "eager"]
    wanted = parts.split(",")
    rest = (modes.split(","), chosen, budget, kept and str(Path(kept).absolute()))
    todo = jobs([p for p in wanted if p != "cold"], names or list(MEASURED), *rest)
    todo += jobs([p for p in wanted if p == "cold"], names or list(EXAMPLES), *rest)
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"

    def keep(results: Results) -> None:
        if json_file:
            rows = [{"key": list(key), **row} for key, row in results.items()]
            json_file.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")

    results = run_all(todo, max(1, jobs_at_once), console, limit or math.inf, keep)
    keep(results)
    others = [c for c in chosen if c != "eager"]
    tables = {
        "steady": lambda: steady_table(results, chosen),
        "cold": lambda: cold_table(results, others),
        "memory": lambda: memory_table(results, chosen),
        "overhead": lambda: overhead_table(results),
        "scaling": lambda: scaling_table(results, others),
    }
    for part in wanted:
        console.print(tables[part]())
    console.print(f"{machine}, Python {platform.python_version()}")


if __name__ == "__main__":
    typer.run(main)
