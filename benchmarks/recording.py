"""`python -m benchmarks.recording`: the cost of recording for reports, while compiling and per call.

While compiling: the time spent on reports as a share of compile time, in the same compilations, because a difference of
two runs would drown in noise. Per call: compiled code called with and without a recorder, alternately, the fastest of
each.
"""

from __future__ import annotations

import contextlib
import gc
import json
import threading
import time
import timeit
from collections.abc import Callable, Iterator
from typing import Annotated, Any
from unittest import mock

import attrs
import torch
import typer
from rich.console import Console
from rich.table import Table

import armature
from armature.frame.guards import tree
from armature.frame.hook import FrameHook
from armature.pipeline import logs, session
from armature.reports import recorder
from armature.reports.recorder import Recorder
from armature.trace import stack as trace_stack
from benchmarks.compilers import ROOT  # noqa: F401  puts examples/ on the path

from models.catalogue import EXAMPLES  # isort: skip

MODELS = ("LeNet", "FeedForward", "MultiHeadAttention", "GPT")
BACKENDS = ("eager", "auto")  # only capturing, and kernels as well
BUDGET = 0.02  # of the compile time
TIMES = 3  # number of measurements of each share
# Everything that is done for reports while a program runs.
FOR_REPORTS: tuple[tuple[Any, str], ...] = (
    (session, "callers"),
    (session.Compilation, "note_failed"),
    (logs, "log"),
    (tree, "marks_of"),
    (trace_stack, "with_columns"),
    (trace_stack, "seen_values"),
    (recorder.Sampler, "_take"),
)


@attrs.define(eq=False)
class Stopwatch:
    """Sums the processor time of functions, nested ones once, separately for each thread, and while compiling only: a
    thread looks at the memory all the time, also while the program builds its models."""

    seconds: float = 0.0
    calls: int = 0
    compiling: int = 0
    _within: threading.local = attrs.field(factory=threading.local)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def around(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function with timing."""

        def call(*args: Any, **kwargs: Any) -> Any:
            outer = getattr(self._within, "any", False)
            self._within.any = True
            start = time.thread_time()
            try:
                return fn(*args, **kwargs)
            finally:
                taken = time.thread_time() - start
                self._within.any = outer
                with self._lock:
                    self.calls += 1
                    self.seconds += taken if self.compiling and not outer else 0.0

        return call

    def during(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which compiles."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.compiling += 1
            try:
                return fn(*args, **kwargs)
            finally:
                self.compiling -= 1

        return call


@contextlib.contextmanager
def watching() -> Iterator[Stopwatch]:
    """A stopwatch around everything that is done for reports."""
    found = Stopwatch()
    with contextlib.ExitStack() as stack:
        for holder, name in FOR_REPORTS:
            stack.enter_context(mock.patch.object(holder, name, found.around(getattr(holder, name))))
        stack.enter_context(mock.patch.object(FrameHook, "_compile", found.during(FrameHook._compile)))
        yield found


def broken(x: Any) -> Any:
    """A function with many breaks."""
    for factor in range(6):
        if x.sum() > factor:
            x = x * factor
    return x


def share(stopwatch: Stopwatch, backend: str) -> float:
    """The share of the time of compiling models and a function with breaks that is spent on reports."""
    armature.reset()
    stopwatch.seconds, stopwatch.calls = 0.0, 0
    with Recorder() as found:
        for name in MODELS:
            example = EXAMPLES[name]()
            with torch.no_grad():
                armature.compile(example.model.eval(), backend=backend)(*example.inputs)
        compiled = armature.compile(broken, backend=backend)
        for size in (3, 4):
            compiled(torch.ones(size))
    return stopwatch.seconds / sum(frame.seconds for frame in found.recording().frames)


def shares(backend: str, times: int = TIMES, enough: float = 0.0) -> list[float]:
    """The share, measured this many times, or until one is below `enough`."""
    armature.compile(broken, backend="eager")(torch.ones(2))  # one-time imports and reads are not a cost of recording
    gc.collect()
    gc.disable()  # nor is garbage collection
    try:
        found: list[float] = []
        with watching() as stopwatch:
            while len(found) < times and min(found, default=1.0) >= enough:
                found.append(share(stopwatch, backend))
        return found
    finally:
        gc.enable()


def per_call(rounds: int = 20, calls: int = 2_000) -> tuple[float, float]:
    """Microseconds per call of compiled code, without recording and with it."""
    armature.reset()
    x = torch.ones(8)
    compiled = armature.compile(lambda x: torch.relu(x) + 1, backend="eager")
    compiled(x)
    plain, recorded = [], []
    for _ in range(rounds):
        plain.append(timeit.timeit(lambda: compiled(x), number=calls))
        with Recorder():
            recorded.append(timeit.timeit(lambda: compiled(x), number=calls))
    return min(plain) / calls * 1e6, min(recorded) / calls * 1e6


def main(as_json: Annotated[bool, typer.Option("--json", help="print the figures as data")] = False) -> None:
    """Measure the cost of recording."""
    found = {backend: shares(backend) for backend in BACKENDS}
    without, recorded = per_call()
    if as_json:
        print(json.dumps({"share_of_compiling": found, "call_us": {"without": without, "recorded": recorded}}))
        return
    table = Table(title="What recording costs")
    for name in ("of", "measured", "budget"):
        table.add_column(name)
    for backend, values in found.items():
        table.add_row(f'compiling, backend="{backend}"', ", ".join(f"{v:.2%}" for v in values), f"{BUDGET:.0%}")
    table.add_row("a call of compiled code", f"{recorded:.2f} us; {without:.2f} us without recording", "nothing")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
