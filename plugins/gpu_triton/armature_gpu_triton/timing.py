"""Times kernels on a CUDA device."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch

RUNS_LEAST, RUNS_MOST = 5, 100
ENOUGH = 0.02  # seconds for which one alternative is run, long enough for a stable median
FLUSHED = 256 << 20  # bytes written between runs, more than any L2 cache has


def with_events(label: str, call: Callable[[], None]) -> float:
    """The median of several runs between CUDA events, on the current stream."""
    flush = torch.empty(FLUSHED, dtype=torch.int8, device="cuda")

    def run() -> tuple[torch.cuda.Event, torch.cuda.Event]:
        flush.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        return start, end

    def seconds(events: Sequence[tuple[torch.cuda.Event, torch.cuda.Event]]) -> list[float]:
        torch.cuda.synchronize()
        return [start.elapsed_time(end) / 1e3 for start, end in events]

    call()
    once = min(seconds([run(), run()]))
    count = max(RUNS_LEAST, min(int(ENOUGH / max(once, 1e-7)), RUNS_MOST))
    return statistics.median(seconds([run() for _ in range(count)]))
