"""`python -m benchmarks.rules`: the cost of a verdict. Prints a table, and with --json writes JSON.

Each run is a fresh process in which only the plugins are imported. It measures the first lookup, including reading the
tables of all plugins, resolving their names and deciding; lookups of new objects; and cached lookups. Time is processor
time, and the best run counts, because the rest is noise.
"""

from __future__ import annotations

import functools
import json
import operator
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import nn

from armature import plugins
from armature.rules import RuleBook
from armature_builtin_rules import load

BUDGET = {"first_ms": 50.0, "cached_ns": 1000.0}


class Slotted:
    """Callable, and not weakly referenceable."""

    __slots__ = ()

    def __call__(self, x: int) -> int:
        """Returns its argument."""
        return x


class WithSlot:
    """With members implemented in C."""

    __slots__ = ("slot",)

    @staticmethod
    def static(x: int) -> int:
        """Returns its argument."""
        return x


KINDS: Mapping[str, Callable[[], Any]] = {
    "function of torch in C": lambda: torch.add,
    "function of torch in Python": lambda: nn.functional.softmax,
    "method of a class": lambda: nn.Linear.forward,
    "bound method": lambda: nn.Linear(1, 1).forward,
    "bound method in C": lambda: torch.ones(1).add,
    "operator": lambda: torch.ops.aten.add.Tensor,
    "class": lambda: nn.Linear,
    "builtin": lambda: len,
    "partial": lambda: functools.partial(nn.functional.softmax, dim=0),
    "function of a user": lambda: fresh_functions(1)[0],
    "instance without weak references": lambda: Slotted(),
    "item getter": lambda: operator.itemgetter(0),
    "static method": lambda: vars(WithSlot)["static"],
    "member": lambda: WithSlot.slot,
}


def fresh_functions(count: int) -> list[Any]:
    """Python functions that have not been looked up before."""
    namespace: dict[str, Any] = {"__name__": "users_module"}
    exec("\n".join(f"def f{i}(x): return x + {i}" for i in range(count)), namespace)
    return [namespace[f"f{i}"] for i in range(count)]


def seconds_per_call(call: Callable[[], object], number: int = 20_000) -> float:
    """The best of several rounds, including the overhead of calling `call`."""
    return min(timeit.repeat(call, timer=time.thread_time, number=number, repeat=5)) / number


def cached(book: RuleBook, obj: object) -> float:
    """Nanoseconds of a cached lookup."""
    book.verdict(obj)
    return seconds_per_call(functools.partial(book.verdict, obj)) * 1e9


def measure() -> dict[str, Any]:
    """The figures of this process, in which nothing was looked up before."""
    manager = plugins.manager()
    manager.implementations("armature_rules")  # imports the plugins; no table is read
    read_by_import = load.rules.cache_info().misses
    start, wall = time.thread_time(), time.perf_counter()
    book = manager.tables().rule_book
    book.verdict(torch.add)
    first, waited = time.thread_time() - start, time.perf_counter() - wall
    functions = fresh_functions(2_000)
    start = time.thread_time()
    for function in functions:
        book.verdict(function)
    new = (time.thread_time() - start) / len(functions)
    return {
        "tables_read_by_import": read_by_import,
        "rules": sum(1 for _ in book.rows()),
        "first_ms": first * 1e3,
        "first_wall_ms": waited * 1e3,
        "new_us": new * 1e6,
        "cached_ns": {kind: cached(book, make()) for kind, make in KINDS.items()},
    }


def fresh_process() -> dict[str, Any]:
    """`measure` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.rules", "--here"]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def best_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The smallest of each figure, and all first lookups."""
    return {
        "tables_read_by_import": max(run["tables_read_by_import"] for run in runs),
        "rules": runs[0]["rules"],
        "first_ms": min(run["first_ms"] for run in runs),
        "first_wall_ms": min(run["first_wall_ms"] for run in runs),
        "new_us": min(run["new_us"] for run in runs),
        "cached_ns": {kind: min(run["cached_ns"][kind] for run in runs) for kind in runs[0]["cached_ns"]},
        "budget": BUDGET,
    }


def table_of(figures: Mapping[str, Any]) -> Table:
    """The figures as a table."""
    table = Table("lookup", "time", "budget", title=f"What a verdict costs ({figures['rules']} rules)")
    table.add_row("the first, tables and all", f"{figures['first_ms']:.1f} ms", f"{BUDGET['first_ms']:.0f} ms")
    table.add_row("of a new Python function", f"{figures['new_us']:.1f} us", "")
    for kind, nanoseconds in figures["cached_ns"].items():
        table.add_row(f"again: {kind}", f"{nanoseconds:.0f} ns", f"{BUDGET['cached_ns']:.0f} ns")
    return table


def main(
    runs: Annotated[int, typer.Option(help="fresh processes")] = 5,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures to this file")] = None,
    here: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Measure lookups in the rule book."""
    if here:
        print(json.dumps(measure()))
        return
    figures = best_of([fresh_process() for _ in range(runs)])
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=1))
    Console().print(table_of(figures))


if __name__ == "__main__":
    typer.run(main)
