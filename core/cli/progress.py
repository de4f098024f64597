"""Shows the progress of a long compilation on a terminal: frames, graphs and kernels, while a command runs a
program."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self

import attrs
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn
from rich.progress import Progress as Bar

from armature.cli.terminal import console
from armature.events import EventKind
from armature.pipeline.session import Compilation, Records, Session

PATIENCE = 2.0  # seconds before a compilation is shown
EVERY = 0.2
STAGES = ("trace", "lower", "schedule", "codegen", "load", "graph")  # in the order in which they end


def bar_on(screen: Console) -> Bar:
    """A bar that disappears when it stops: one step for each stage of the current compilation."""
    columns = (SpinnerColumn(), BarColumn(bar_width=len(STAGES) * 2), TextColumn("{task.description}"))
    return Bar(*columns, console=screen, transient=True)


@attrs.define(eq=False)
class Progress:
    """Shows a session's activity for the body of a `with`; does nothing if standard error is not a terminal."""

    of: Session
    records: Records = attrs.field(factory=Records)
    bar: Bar = attrs.field(factory=lambda: bar_on(console(stderr=True)))
    task: TaskID = attrs.field(init=False)
    _stopped: threading.Event = attrs.field(factory=threading.Event)
    _thread: threading.Thread | None = None

    def __attrs_post_init__(self) -> None:
        self.task = self.bar.add_task("", total=len(STAGES))

    def __enter__(self) -> Self:
        self.of.followers.append(self.records)
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._run, name="armature-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        self._hide()
        self.of.followers.remove(self.records)

    def _hide(self) -> None:
        if self.bar.live.is_started:  # rich ends a line even if it has started none
            self.bar.stop()

    def _run(self) -> None:
        while not self._stopped.wait(EVERY):
            self.look(time.perf_counter())

    def look(self, now: float) -> None:
        """Show the current compilation if it is taking long; hide the bar when it has ended."""
        current = under_way(self.records)
        if current is None or now - current.started < PATIENCE:
            self._hide()
            return
        self.bar.update(
            self.task, description=progress_text(self.records, current, now), completed=len(stages_of(current))
        )
        self.bar.start()


def under_way(records: Records) -> Compilation | None:
    """The compilation that has started and not ended."""
    last = records.compilations[-1] if records.compilations else None
    return last if last is not None and not last.seconds else None


def progress_text(records: Records, current: Compilation, now: float) -> str:
    """The line to show: what is compiled, for how long, and the counts so far."""
    graphs = [graph for record in records.compilations for graph in record.graphs]
    kernels = sum(graph.program.kernel_count for graph in graphs)
    done = stages_of(current)
    after = f" after {done[-1]}" if done else ""
    counts = f"{len(records.compilations)} frames, {len(graphs)} graphs, {kernels} kernels"
    return f"compiling {current.function}{after}, {now - current.started:.0f} s ({counts} so far)"


def stages_of(record: Compilation) -> list[str]:
    """The stages that have ended, each once, in order: a frame may have several graphs."""
    ended = dict.fromkeys(event.detail for event in record.events if event.kind is EventKind.STAGE)
    return [stage for stage in ended if stage in STAGES]
