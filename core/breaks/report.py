"""The result of `armature.explain`: graphs, breaks and guards of one run, as text and as a web page."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from torch import fx

from armature.breaks import events
from armature.breaks.types import BreakEvent

NAMED = 5  # most functions listed for one reason to leave them alone
INDENT = "   "


@attrs.frozen
class Indented:
    """Something indented below a heading. Unlike rich's Padding it adds no blanks at the ends of lines, which would
    show in logs and pipes."""

    inner: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.update(width=max(options.max_width - len(INDENT), 1))
        for line in console.render_lines(self.inner, narrow, pad=False):
            yield Segment(INDENT)
            yield from line
            yield Segment.line()


@attrs.frozen
class BreakReason:
    """A graph break in the form of `torch._dynamo.explain`: a text, and with the user's stack, innermost last."""

    reason: str
    user_stack: tuple[traceback.FrameSummary, ...]
    graph_break: bool = True

    @classmethod
    def of(cls, event: BreakEvent) -> BreakReason:
        """The break of an event."""
        lines = [f"{event.type.title} [{event.type.id}]: {events.explanation(event)}"]
        lines += [f"  What to do: {hint}" for hint in events.hints(event)]
        stack = [traceback.FrameSummary(f.file, f.line, f.function, line=f.text or None) for f in event.stack]
        return cls("\n".join(lines), tuple(stack))


@attrs.frozen(eq=False)
class ExplainedFrame:
    """One frame: its location, its outcome, its graph if it has one, and the guards under which the graph is used.

    seconds: the time of each stage of its compilation, and under "whole" of all stages; 0 if it did not finish.
    """

    function: str
    file: str
    line: int
    outcome: str
    reason: str = ""
    graph: fx.GraphModule | None = None
    guards: tuple[str, ...] = ()
    breaks: tuple[BreakEvent, ...] = ()
    seconds: Mapping[str, float] = attrs.field(factory=dict)

    @property
    def calls(self) -> list[Callable[..., Any] | str]:
        """The functions, and the names of methods, that the graph calls."""
        return [node.target for node in self.graph.graph.nodes if node.op.startswith("call_")] if self.graph else []

    @property
    def operators(self) -> int:
        """Calls in the graph."""
        return len(self.calls)

    @property
    def code(self) -> str:
        """The graph as Python text; "" if there is none."""
        return self.graph.code.strip() if self.graph else ""


@attrs.frozen
class SkippedFrame:
    """A function whose frames were inspected and not compiled, and why."""

    function: str
    file: str
    line: int
    reason: str


@attrs.frozen(eq=False)
class ExplainOutput:
    """The graphs captured in one run of a function, and the functions left alone.

    page: makes the text of its web page.
    `graph_count`, `graph_break_count`, `op_count`, `break_reasons`, `graphs`, `ops_per_graph`, `out_guards` and
    `compile_times` have the meaning that they have in the result of `torch._dynamo.explain`; guards are texts.
    """

    frames: tuple[ExplainedFrame, ...]
    skipped: tuple[SkippedFrame, ...]
    page: Callable[[], str]

    @property
    def graphs(self) -> tuple[fx.GraphModule, ...]:
        """The captured graphs, in the order in which they ran first."""
        return tuple(frame.graph for frame in self.frames if frame.graph is not None)

    @property
    def graph_count(self) -> int:
        """The number of captured graphs."""
        return len(self.graphs)

    @property
    def breaks(self) -> tuple[BreakEvent, ...]:
        """All graph breaks."""
        return tuple(event for frame in self.frames for event in frame.breaks)

    @property
    def break_count(self) -> int:
        """The number of graph breaks."""
        return len(self.breaks)

    @property
    def guards(self) -> tuple[str, ...]:
        """All guards in words."""
        return tuple(text for frame in self.frames for text in frame.guards)

    @property
    def graph_break_count(self) -> int:
        """The same as `break_count`."""
        return self.break_count

    @property
    def break_reasons(self) -> list[BreakReason]:
        """Each graph break in words, with the user's stack."""
        return [BreakReason.of(event) for event in self.breaks]

    @property
    def ops_per_graph(self) -> list[list[Callable[..., Any] | str]]:
        """The functions, and the names of methods, that each graph calls."""
        return [frame.calls for frame in self.frames if frame.graph is not None]

    @property
    def op_count(self) -> int:
        """The number of calls in all graphs."""
        return sum(map(len, self.ops_per_graph))

    @property
    def out_guards(self) -> list[str]:
        """All guards in words."""
        return list(self.guards)

    @property
    def compile_times(self) -> str:
        """A line for each stage: its name, and its seconds for each frame."""
        stages: dict[str, list[float]] = {}
        for frame in self.frames:
            for stage, seconds in frame.seconds.items():
                stages.setdefault(stage, []).append(seconds)
        lines = [f"{stage}, {', '.join(f'{seconds:.6f}' for seconds in found)}" for stage, found in stages.items()]
        return "\n".join(["stage, seconds for each frame", *lines])

    def __str__(self) -> str:
        console = Console(width=110, no_color=True, highlight=False)
        with console.capture() as captured:
            console.print(self)
        return captured.get()

    __repr__ = __str__

    def __rich__(self) -> RenderableType:
        table = Table(title=f"{self.graph_count} graphs, {self.break_count} breaks, {len(self.guards)} guards")
        for name in ("function", "where", "outcome", "operators", "guards"):
            table.add_column(name)
        for frame in self.frames:
            place = f"{Path(frame.file).name}:{frame.line}"
            outcome = f"{frame.outcome}: {frame.reason}" if frame.reason else frame.outcome
            table.add_row(frame.function, place, outcome, str(frame.operators), str(len(frame.guards)))
        return Group(table, *skip_report(self.skipped), *break_report(self.breaks))

    def to_html(self, path: str | Path) -> Path:
        """Write the self-contained page of `armature explain --html`; returns its path. Errors: OSError."""
        target = Path(path)
        target.write_text(self.page(), encoding="utf-8", errors="backslashreplace")  # file names may not be valid text
        return target


def skip_report(found: Iterable[SkippedFrame]) -> list[RenderableType]:
    """The functions that were left alone, by reason; nothing if there are none."""
    by_reason: dict[str, list[SkippedFrame]] = {}
    for skip in found:
        by_reason.setdefault(skip.reason, []).append(skip)
    table = Table(title="left alone")
    for name in ("reason", "functions"):
        table.add_column(name)
    for reason, skips in by_reason.items():
        named = [f"{skip.function} {Path(skip.file).name}:{skip.line}" for skip in skips[:NAMED]]
        more = [f"and {len(skips) - NAMED} more"] if len(skips) > NAMED else []
        table.add_row(reason, "\n".join([*named, *more]))
    return [table] if table.row_count else []


def break_report(found: Iterable[BreakEvent]) -> list[RenderableType]:
    """Each break: title, the user's line, stack, explanation and hints."""
    lines: list[RenderableType] = []
    for number, event in enumerate(found, 1):
        head = Text(f"{number}. {event.type.title} ", style="bold")
        head.append(f"[{event.type.id}] {events.where(event)}")
        body = [Text(events.explanation(event))]
        body += [Text(events.stack_text(event), style="dim")] if event.stack else []
        body += [Text(f"What to do: {hint}") for hint in events.hints(event)]
        body += [Text(event.type.docs_url)] if event.type.docs_url else []
        lines += [head, *map(Indented, body)]
    return lines
