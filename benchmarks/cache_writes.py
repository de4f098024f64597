"""`python -m benchmarks.cache_writes`: writing an entry to key and value caches, as each decoding step does.

Eager mode, armature and torch.compile run alternately; a time is the median of many calls.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import armature

SHAPE = (1, 8, 4096, 64)  # batch, heads, entries, width
ROUNDS = 200
Write = Callable[[Tensor, Tensor, Any, Tensor], Tensor]


def at_tensor(keys: Tensor, values: Tensor, place: Tensor, entry: Tensor) -> Tensor:
    """The position is a tensor: the same code for each step."""
    keys[:, :, place] = entry
    values[:, :, place] = entry * 2
    return entry.sum()


def at_number(keys: Tensor, values: Tensor, place: int, entry: Tensor) -> Tensor:
    """The position is a number."""
    keys[:, :, place : place + 1] = entry
    values[:, :, place : place + 1] = entry * 2
    return entry.sum()


def microseconds(write: Write, place: object) -> Mapping[str, float]:
    """Median microseconds of a call, for each way to run it."""
    runs = {"eager": write, "armature": armature.compile(write), "torch.compile": torch.compile(write)}
    keys, values = torch.randn(SHAPE), torch.randn(SHAPE)
    entry = torch.randn(*SHAPE[:2], 1, SHAPE[3])
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(ROUNDS + 3):
        for name, run in runs.items():
            start = time.perf_counter()
            run(keys, values, place, entry)
            if number >= 3:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(own) * 1e6 for name, own in times.items()}


def main() -> None:
    """Measure and print a table."""
    table = Table("place", "eager, us", "armature, us", "torch.compile, us", box=None, header_style="bold")
    with torch.no_grad():
        cases: list[tuple[str, Write, object]] = [("tensor", at_tensor, torch.tensor([17])), ("number", at_number, 17)]
        for name, write, place in cases:
            found = microseconds(write, place)
            table.add_row(name, *(f"{found[run]:.0f}" for run in ("eager", "armature", "torch.compile")))
    Console().print(table)


if __name__ == "__main__":
    main()
