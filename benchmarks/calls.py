"""`python -m benchmarks.calls`: microseconds of a call of compiled code, for programs so small that little else counts.

Each program runs in many short rounds, of which the fastest counts. With `--beside CHECKOUT`, that tree (with a `.venv`
of its own) is measured alternately with this one, each time in a new process.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import armature

ROOT = Path(__file__).resolve().parents[1]
CALLS = 200  # of one round
Call = Callable[[], object]


class Scaled(nn.Module):
    """A method of this is compiled: its guards are on attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.scales, self.names = 2.0, True, ["a", "b"]
        self.offset = nn.Parameter(torch.ones(4), requires_grad=False)

    def run(self, x: Tensor) -> Tensor:
        """Some numbers of the attributes."""
        return x * self.scale + self.offset if self.scales and len(self.names) == 2 else x


def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


def programs() -> dict[str, tuple[Call, bool]]:
    """A call of each program, and whether gradients are on."""
    x, y, rows, into = torch.ones(4), torch.ones(4), torch.ones(2, 4), torch.zeros(4)
    added, eagerly = armature.compile(add), armature.compile(add, backend="eager")
    method, written = armature.compile(Scaled().run), armature.compile(lambda t: t.add_(1.0))
    inferring, training = armature.compile(layers().eval()), armature.compile(layers())
    return {
        "x + y": (lambda: added(x, y), True),
        "x + y, no_grad": (lambda: added(x, y), False),
        'x + y, backend="eager"': (lambda: eagerly(x, y), True),
        "a method, guards on attributes": (lambda: method(x), True),
        "x.add_(1)": (lambda: written(into), True),
        "three layers, inference": (lambda: inferring(rows), False),
        "three layers, training forward": (lambda: training(rows), True),
    }


def measured(rounds: int) -> dict[str, float]:
    """Microseconds of a call of each program, the best of the rounds."""
    torch.set_num_threads(1)
    found = {}
    for name, (call, gradients) in programs().items():
        with contextlib.nullcontext() if gradients else torch.no_grad():
            timeit.timeit(call, number=20)  # compiles
            gc.collect()
            found[name] = min(timeit.repeat(call, number=CALLS, repeat=rounds)) / CALLS * 1e6
    return found


def in_process(tree: Path, rounds: int) -> dict[str, float]:
    """The same in a new process, for any checkout: it runs this file."""
    python = tree / ".venv/bin/python"
    command = [str(python if python.exists() else sys.executable), __file__, "--rounds", str(rounds), "--json"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True, env=os.environ)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main(
    rounds: Annotated[int, typer.Option(help="short rounds of each program")] = 400,
    beside: Annotated[Path | None, typer.Option(help="another checkout to measure alternately with this one")] = None,
    times: Annotated[int, typer.Option(help="processes for each tree")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="measure in this process, print data")] = False,
) -> None:
    """Measure and print."""
    if as_json:
        print(json.dumps(measured(rounds)))
        return
    trees = {"this": ROOT} | ({} if beside is None else {"beside": beside.resolve()})
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for number in range(times):
        for name in list(trees)[:: 1 if number % 2 else -1]:
            runs[name].append(in_process(trees[name], rounds))
    best = {name: {key: min(run[key] for run in found) for key in found[0]} for name, found in runs.items()}
    table = Table(title="A call of compiled code, microseconds")
    for column in ("", *trees, *(["this / beside"] if beside else [])):
        table.add_column(column, justify="right" if column else "left")
    for key, value in best["this"].items():
        other: Any = best.get("beside", {}).get(key)
        more = [] if other is None else [f"{other:.2f}", f"{value / other:.2f}"]
        table.add_row(key, f"{value:.2f}", *more)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
