"""Records when graphs and kernels ran, for traces. Only code that is compiled while a timeline exists is timed."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import attrs

MOST = 200_000  # runs stored; further ones are only counted


@attrs.frozen
class Ran:
    """One run of a graph or kernel. start: of `time.perf_counter`; thread: its identifier."""

    name: str
    kind: str
    start: float
    seconds: float
    thread: int


@attrs.define(eq=False)
class Timeline:
    """The runs, in the order in which they ended. left_out: how many were dropped."""

    runs: list[Ran] = attrs.field(factory=list)
    most: int = MOST
    left_out: int = 0

    def timed(self, kind: str, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function to record each call. On a GPU that is the time of the launch."""

        @functools.wraps(fn, assigned=("__name__",), updated=())
        def call(*args: Any) -> Any:
            start = time.perf_counter()
            try:
                return fn(*args)
            finally:
                self.add(Ran(name, kind, start, time.perf_counter() - start, threading.get_ident()))

        return call

    def add(self, ran: Ran) -> None:
        """Store a run if there is room."""
        if len(self.runs) < self.most:
            self.runs.append(ran)
        else:
            self.left_out += 1
