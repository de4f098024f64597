"""Charts of memory over time for the terminal: of each graph, from its plan, and of the process, as measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import attrs
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from armature.reports.collect import counted
from armature.reports.record import Graph, MemorySample, Recording

ROWS = 6  # height of a chart
WIDEST = 100  # columns
LABEL = 11  # columns of `1023.9 MiB `
MOST_GRAPHS = 10
EIGHTHS = " ▁▂▃▄▅▆▇█"


def entries(recording: Recording) -> list[list[RenderableType]]:
    """A heading and a chart for each graph, the highest peak first, and for the process."""
    known = sorted((graph for graph in recording.graphs if graph.memory), key=lambda graph: -graph.peak_bytes)
    found: list[list[RenderableType]] = [list(of_graph(graph, recording)) for graph in known[:MOST_GRAPHS]]
    if len(known) > MOST_GRAPHS:
        found.append([Text(f"and {len(known) - MOST_GRAPHS} more graphs", style="dim")])
    if len(recording.graphs) > len(known):
        unknown = counted(len(recording.graphs) - len(known), "graph")
        found.append([Text(f"{unknown} without a picture: not planned, or sizes vary", style="dim")])
    return found + [list(part) for part in of_process(recording.memory)]


def of_graph(graph: Graph, recording: Recording) -> Iterator[RenderableType]:
    """The memory that a graph has allocated at each step of its plan. Inputs belong to the caller and are not
    counted."""
    where = recording.frames[graph.frame].where if graph.frame < len(recording.frames) else ""
    peak = graph.peak_bytes
    first = next(number for number, step in enumerate(graph.memory, 1) if step.bytes == peak)
    yield Text.assemble((graph.name, "bold"), f"  {where}  at most {size(peak)}")
    yield Area([step.bytes for step in graph.memory])
    steps = counted(len(graph.memory), "step")
    yield Text(f"{steps}, the most in step {first}: {graph.memory[first - 1].step}", style="dim")


def of_process(memory: Sequence[MemorySample]) -> Iterator[list[RenderableType]]:
    """Main memory of the process, and memory of tensors on accelerators where there were any."""
    if not memory:
        return
    seconds = memory[-1].at - memory[0].at
    for title, values in (
        ("the process", [sample.resident for sample in memory]),
        ("tensors on accelerators", [sample.device for sample in memory]),
    ):
        if any(values):
            head = Text.assemble((title, "bold"), f"  at most {size(max(values))}")
            yield [head, Area(values), Text(f"over {seconds:.1f} s", style="dim")]


@attrs.frozen
class Area:
    """Values as an area of block characters, from left to right, with the scale before it."""

    values: Sequence[int]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = resampled(self.values, min(options.max_width - LABEL, WIDEST))
        most = max(columns, default=0)
        for row in reversed(range(ROWS)):
            label = size(most) if row == ROWS - 1 else "0 B" if row == 0 else ""
            cells = "".join(cell(value, most, row, options.ascii_only) for value in columns)
            yield Text.assemble((f"{label:>{LABEL - 1}} ", "dim"), (cells.rstrip(), "cyan"), no_wrap=True)


def resampled(values: Sequence[int], columns: int) -> list[int]:
    """Fit the values to the columns: where several share a column the largest counts; if there are few, each is
    repeated."""
    columns = max(columns, 1)
    if len(values) <= columns:
        times = columns // max(len(values), 1)
        return [value for value in values for _ in range(times)]
    edges = [column * len(values) // columns for column in range(columns + 1)]
    return [max(values[start:end]) for start, end in pairwise(edges)]


def cell(value: int, most: int, row: int, plain: bool) -> str:
    """The character for the part of a column that falls into a row; row 0 is the lowest."""
    eighths = round(value / most * ROWS * 8) if most else 0
    if value and not eighths:
        eighths = 1  # a small value is still visible
    filled = min(max(eighths - row * 8, 0), 8)
    return EIGHTHS[filled] if not plain else "#" if filled >= 4 or (filled and row == 0) else " "


def size(count: int) -> str:
    """Bytes for people: `1.5 MiB`."""
    amount, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"
