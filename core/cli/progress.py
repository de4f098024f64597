"""How far a long compilation is, on a terminal: frames, graphs and kernels, while a program runs under a command."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self

import attrs
from rich.status import Status

from armature.cli.terminal import console
from armature.pipeline.session import Compilation, Records, Session

PATIENCE = 2.0  # seconds that a compilation takes before it is shown
EVERY = 0.2


@attrs.define(eq=False)
class Progress:
    """Shows, for the body of a `with`, what a session is at; nothing where standard error is no terminal."""

    of: Session
    records: Records = attrs.field(factory=Records)
    status: Status = attrs.field(factory=lambda: Status("", console=console(stderr=True)))
    _stopped: threading.Event = attrs.field(factory=threading.Event)
    _thread: threading.Thread | None = None

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
        self.status.stop()
        self.of.followers.remove(self.records)

    def _run(self) -> None:
        while not self._stopped.wait(EVERY):
            self.look(time.perf_counter())

    def look(self, now: float) -> None:
        """Show the compilation that is under way, if it has been for long; hide it when it has ended."""
        current = under_way(self.records)
        if current is None or now - current.started < PATIENCE:
            self.status.stop()
            return
        self.status.update(told(self.records, current, now))
        self.status.start()


def under_way(records: Records) -> Compilation | None:
    """The compilation that has begun and not ended."""
    last = records.compilations[-1] if records.compilations else None
    return last if last is not None and not last.seconds else None


def told(records: Records, current: Compilation, now: float) -> str:
    """The line: what is compiled, for how long, and what was done so far."""
    graphs = [graph for record in records.compilations for graph in record.graphs]
    kernels = sum(graph.program.kernel_count for graph in graphs)
    stages = [event.detail for event in current.events if event.detail]
    after = f" after {stages[-1]}" if stages else ""
    done = f"{len(records.compilations)} frames, {len(graphs)} graphs, {kernels} kernels"
    return f"compiling {current.function}{after}, {now - current.started:.0f} s ({done} so far)"
