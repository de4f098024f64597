"""The command: selects models, runs them in parallel processes within a time limit, and writes the results."""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import platform
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.zoo import report
from benchmarks.zoo.case import matches
from benchmarks.zoo.causes import FATAL, failures, model_of
from benchmarks.zoo.earlier import machines, read_rows
from benchmarks.zoo.known import new, read
from benchmarks.zoo.libraries import LIBRARIES
from benchmarks.zoo.measure import PHASES, Settings, measure
from benchmarks.zoo.pool import PRELOADED, Job, run_all

Row = dict[str, Any]


def list_names(library: str, _: str, settings: Settings, write: Any) -> None:
    """The names of a library's models, as the row of a separate process: libraries are only imported in such
    processes."""
    write({"library": library, "name": "", "names": list(dict.fromkeys(LIBRARIES[library].names()))})


def missing(library: str) -> list[str]:
    """Modules of a library that are not installed."""
    return [module for module in LIBRARIES[library].modules if importlib.util.find_spec(module) is None]


def all_names(libraries: list[str], console: Console) -> Iterator[tuple[str, str]]:
    """Library and model, for the installed libraries; reports missing ones."""
    jobs = []
    for library in libraries:
        if absent := missing(library):
            console.print(f"[yellow]{library}: not installed ({', '.join(absent)}), so left out[/]")
        else:
            jobs.append(Job(library, "", Settings(), 300.0))
    for row in run_all(jobs, list_names, len(jobs) or 1):
        if "names" not in row:
            console.print(f"[red]{row['library']}: its models can't be listed: {row.get('log', '')[-600:]}[/]")
        for name in row.get("names", ()):
            yield row["library"], name


def evenly(names: list[tuple[str, str]], seed: str) -> list[tuple[str, str]]:
    """The names in a random order in which every prefix has about the same share of each library."""
    by_library: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for pair in sorted(names):
        by_library[pair[0]].append(pair)
    placed: list[tuple[float, tuple[str, str]]] = []
    for library, pairs in by_library.items():
        generator = random.Random(f"{seed} {library}")
        generator.shuffle(pairs)
        placed += [((number + generator.random()) / len(pairs), pair) for number, pair in enumerate(pairs)]
    return [pair for _, pair in sorted(placed)]


def chosen(names: list[tuple[str, str]], match: str, sample: int, seed: str, shard: str) -> list[tuple[str, str]]:
    """The models to measure: those that match, a sample of them, or one of n parts of it."""
    patterns = [part for part in match.split(",") if part]
    found = [pair for pair in names if not patterns or any(matches("/".join(pair), p) for p in patterns)]
    # The parts take equally long, and an interrupted run has covered something of everything.
    found = evenly(found, seed if sample else "order")
    found = found[:sample] if sample else found
    part, _, parts = shard.partition("/")
    return found[int(part) - 1 :: int(parts)] if parts else found


def prepare_environment(device: str) -> None:
    """Set the environment that the models' processes inherit, before the first of them starts."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # many models run in parallel
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("ARMATURE_CACHE_DIR", tempfile.mkdtemp(prefix="zoo-cache-"))
    if device == "cpu":
        # Libraries query GPUs when imported, after which forks can't use them, and any use of a device fails. So hide
        # all GPUs.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def main(
    library: Annotated[str, typer.Option(help="comma-separated; all by default")] = "",
    match: Annotated[str, typer.Option(help="comma-separated patterns of LIBRARY/MODEL, with * or as parts")] = "",
    sample: Annotated[int, typer.Option(help="number of models, drawn at random; 0: all")] = 0,
    seed: Annotated[str, typer.Option(help="of the sample; the date by default")] = "",
    shard: Annotated[str, typer.Option(help="i/n: the i-th of n parts")] = "",
    jobs: Annotated[int, typer.Option(help="number of parallel processes")] = max(1, (os.cpu_count() or 2) // 2),
    timeout: Annotated[float, typer.Option(help="seconds for one model")] = 240.0,
    limit: Annotated[float, typer.Option(help="for the whole run, in seconds; 0: no limit")] = 0.0,
    out: Annotated[Path, typer.Option(help="folder for rows.jsonl, zoo.json and zoo.html")] = Path("build/zoo"),
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    auto: Annotated[bool, typer.Option(help="run armature's kernels too, not only the captured graphs")] = True,
    incumbent: Annotated[bool, typer.Option(help="also count torch.compile's graphs")] = True,
    strict: Annotated[bool, typer.Option(help="armature's strict mode")] = False,
    dynamic: Annotated[bool, typer.Option(help="sizes as symbols from the start")] = False,
    phases: Annotated[str, typer.Option(help="infer,train; none to build the models only")] = "infer,train",
    every_model: Annotated[bool, typer.Option(help="print a line for each model")] = True,
    only_list: Annotated[bool, typer.Option("--list", help="print the names and exit")] = False,
    earlier: Annotated[str, typer.Option(help="comma-separated folders of earlier runs that this one continues")] = "",
    merge: Annotated[bool, typer.Option("--merge", help="only merge the earlier runs")] = False,
) -> None:
    """Compare models of libraries with eager mode, and count their graphs beside torch.compile's."""
    start = time.monotonic()
    console = Console()
    prepare_environment(device)
    seed = seed or datetime.date.today().isoformat()
    folders = [Path(part) for part in earlier.split(",") if part]
    before = read_rows(folders)
    libraries = [name for name in library.split(",") if name] or list(LIBRARIES)
    names = [] if merge else list(all_names(libraries, console))
    done = {model_of(row) for row in before}
    todo = [pair for pair in chosen(names, match, sample, seed, shard) if "/".join(pair) not in done]
    if sample or before:
        console.print(f"{len(todo)} of {len(names)} models, --seed {seed}; {len(before)} of earlier runs")
    if only_list:
        for pair in sorted(todo):
            print("/".join(pair))
        return
    wanted = tuple(phase for phase in PHASES if phase in phases.split(","))
    settings = Settings(device, auto, strict, incumbent, dynamic, wanted)
    out.mkdir(parents=True, exist_ok=True)
    work = [Job(library, name, settings, timeout) for library, name in todo]
    rows = measured(work, before, jobs, start + limit if limit else None, out, console, device)
    here = f"{platform.machine()}, {os.cpu_count()} cores, {device}, torch {torch.__version__}"
    here = f"{here}, Python {platform.python_version()}"
    machine = "; ".join(dict.fromkeys([*machines(folders), *([] if merge else [here])]))
    report.write(rows, out, {"machine": machine})
    console.print(report.terminal(rows, every_model))
    console.print(f"{machine}; {time.monotonic() - start:.0f} s; written to {out}")
    unexpected = new((failure for row in rows for failure in failures(row)), read())
    for failure in unexpected:
        line = f"{failure.kind}: {failure.model}, {failure.where}: {failure.cause}"
        console.print(line, style="red", markup=False, highlight=False)
    if unexpected:
        raise typer.Exit(1)


def measured(
    work: list[Job], before: list[Row], jobs: int, deadline: float | None, out: Path, console: Console, device: str
) -> list[Row]:
    """The rows of earlier runs, followed by those of this one, written to a file as they arrive."""
    rows: list[Row] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with open(out / "rows.jsonl", "w") as file, Progress(*columns, console=console) as progress:
        task = progress.add_task("measuring", total=len(work))
        bad = 0
        preloaded = PRELOADED if device == "cpu" else None
        new_rows = run_all(work, measure, jobs, deadline, preloaded) if work else ()
        for row in chain(before, new_rows):
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
            bad += any(failure.kind in FATAL for failure in failures(row))
            progress.update(task, completed=len(rows) - len(before), description=f"{bad} bad; {row['name']}")
    return rows


def run() -> None:
    """The command line."""
    typer.run(main)
