"""The command line: which operators, in how many processes, and where the tables go."""

from __future__ import annotations

import json
import os
import platform
import random
import re
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.opinfo import report
from benchmarks.opinfo.report import Row
from benchmarks.opinfo.samples import Settings, measure, operators, parts
from benchmarks.zoo.pool import Job, run_all

DTYPES = "float32,float64,bfloat16,int64,bool"
PRELOADED = ("benchmarks.opinfo.preload",)


def chosen(names: list[str], match: str, shard: str) -> list[str]:
    """The matching operators, shuffled so that parts take equally long, or one of n parts of them."""
    found = [name for name in names if re.search(match, name)]
    random.Random("order").shuffle(found)
    part, _, parts = shard.partition("/")
    return found[int(part) - 1 :: int(parts)] if parts else found


def main(
    match: Annotated[str, typer.Option(help="a regular expression for names of operators")] = "",
    dtypes: Annotated[str, typer.Option(help="comma-separated")] = DTYPES,
    modes: Annotated[str, typer.Option(help="comma-separated: forward, backward")] = "forward,backward",
    samples: Annotated[int, typer.Option(help="of each operator, spread over all of them; 0: all")] = 0,
    device: Annotated[str, typer.Option(help="where tensors are")] = "cpu",
    backend: Annotated[str, typer.Option(help="of armature.compile")] = "auto",
    beside: Annotated[bool, typer.Option(help="count the loops and calls of torch.compile too")] = False,
    shard: Annotated[str, typer.Option(help="i/n: the i-th of n parts, from 1")] = "",
    jobs: Annotated[int, typer.Option(help="processes at a time")] = os.cpu_count() or 1,
    timeout: Annotated[float, typer.Option(help="seconds for one operator")] = 900.0,
    limit: Annotated[float, typer.Option(help="seconds for the whole run; 0: no limit")] = 0.0,
    out: Annotated[Path, typer.Option(help="folder for the tables and JSON")] = Path("opinfo-results"),
) -> None:
    """Every operator's samples, compiled and compared with eager mode and float64."""
    console, start = Console(), time.monotonic()
    names: dict[str, list[str]] = {}
    for kind in filter(None, dtypes.split(",")):
        for name in operators(getattr(torch, kind), device):
            names.setdefault(name, []).append(kind)
    wanted = tuple(mode for mode in ("forward", "backward") if mode in modes.split(","))
    settings = Settings(device, wanted, samples, backend, beside)
    if device == "cpu":  # torch's table queries a GPU when imported, after which a fork can't use it: hide all GPUs
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    work = [Job(",".join(names[name]), name, settings, timeout) for name in chosen([*names], match, shard)]
    out.mkdir(parents=True, exist_ok=True)
    rows = measured(work, jobs, start + limit if limit else None, out, console, device)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {device}, torch {torch.__version__}"
    report.write(rows, out, {"machine": machine, "samples": samples, "shard": shard})
    console.print(report.terminal(rows))
    console.print(f"{machine}; {time.monotonic() - start:.0f} s; written to {out}")
    if any(map(report.is_bad, rows)):
        raise typer.Exit(1)


def measured(work: list[Job], jobs: int, deadline: float | None, out: Path, console: Console, device: str) -> list[Row]:
    """The rows, written to a file as they arrive."""
    rows: list[Row] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with open(out / "rows.jsonl", "w") as file, Progress(*columns, console=console) as progress:
        task = progress.add_task("measuring", total=len(work))
        # A process that has queried a GPU can't be forked.
        preloaded = PRELOADED if device == "cpu" else ()
        for done in run_all(work, measure, jobs, deadline, preloaded):
            rows += parts(done)
            file.writelines(json.dumps(row) + "\n" for row in parts(done))
            file.flush()
            bad = sum(map(report.is_bad, rows))
            progress.update(task, advance=1, description=f"{bad} bad; {done['name']}")
    return rows


def run() -> None:
    """The command line."""
    typer.run(main)
