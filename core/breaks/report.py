"""What `armature.explain` gives: graphs, breaks and guards of one run, as text and as a web page."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import attrs
from jinja2 import Environment, FileSystemLoader
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from torch import fx

from armature.breaks import events
from armature.breaks.types import BreakEvent

TEMPLATES = Path(__file__).parent / "templates"


@attrs.frozen(eq=False)
class ExplainedFrame:
    """One frame: its place, how it ended, its graph where it has one, and the guards under which that is used."""

    function: str
    file: str
    line: int
    outcome: str
    reason: str = ""
    graph: fx.GraphModule | None = None
    guards: tuple[str, ...] = ()
    breaks: tuple[BreakEvent, ...] = ()

    @property
    def operators(self) -> int:
        """Calls in the graph."""
        return sum(node.op.startswith("call_") for node in self.graph.graph.nodes) if self.graph else 0

    @property
    def code(self) -> str:
        """The graph as Python text, "" where there is none."""
        return self.graph.code.strip() if self.graph else ""


@attrs.frozen(eq=False)
class ExplainOutput:
    """What was captured in one run of a function."""

    frames: tuple[ExplainedFrame, ...]

    @property
    def graphs(self) -> tuple[fx.GraphModule, ...]:
        """The captured graphs, in the order in which they ran first."""
        return tuple(frame.graph for frame in self.frames if frame.graph is not None)

    @property
    def graph_count(self) -> int:
        """How many graphs were captured."""
        return len(self.graphs)

    @property
    def breaks(self) -> tuple[BreakEvent, ...]:
        """All graph breaks."""
        return tuple(event for frame in self.frames for event in frame.breaks)

    @property
    def break_count(self) -> int:
        """How many graph breaks there were."""
        return len(self.breaks)

    @property
    def guards(self) -> tuple[str, ...]:
        """All guards in words."""
        return tuple(text for frame in self.frames for text in frame.guards)

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
        return Group(table, *break_report(self.breaks))

    def to_html(self, path: str | Path) -> Path:
        """Write a page that stands alone; returns its path."""
        target = Path(path)
        environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True)
        page = environment.get_template("explain.html.j2").render(output=self, events=events)
        target.write_text(page, encoding="utf-8")
        return target


def break_report(found: Iterable[BreakEvent]) -> list[RenderableType]:
    """Each break: title, the user's place, stack, explanation and hints."""
    lines: list[RenderableType] = []
    for number, event in enumerate(found, 1):
        head = Text(f"{number}. {event.type.title} ", style="bold")
        head.append(f"[{event.type.id}] {events.where(event)}")
        body = [Text(events.explanation(event))]
        body += [Text(events.stack_text(event), style="dim")] if event.stack else []
        body += [Text(f"What to do: {hint}") for hint in events.hints(event)]
        body += [Text(event.type.docs_url)] if event.type.docs_url else []
        lines += [head, *(Padding(part, (0, 0, 0, 3)) for part in body)]
    return lines
