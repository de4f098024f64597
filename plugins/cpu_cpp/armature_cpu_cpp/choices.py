"""Chooses among ways to compute a kernel by measuring them on this machine."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch

from armature.backend_api import Alternative, GroupSpec, KernelSource, LibrarySpec, in_order, launches_of, measured
from armature_cpu_cpp.source import without_comments

if TYPE_CHECKING:
    from armature.plugin_api import Services

RUNS_LEAST, RUNS_MOST = 5, 200
ENOUGH = 0.02  # seconds for which one alternative is run
CPU = torch.device("cpu")


@cache
def machine() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def shortest(label: str, call: Callable[[], None]) -> float:
    """The shortest of several runs: whatever else runs on the machine only makes them longer."""
    call()
    times: list[float] = []
    while len(times) < RUNS_LEAST or (sum(times) < ENOUGH and len(times) < RUNS_MOST):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def chooser(
    source: KernelSource, ctx: Services, functions: Mapping[str, Callable[..., None]], timer: measured.Timer
) -> measured.Chooser:
    """Chooses for the groups of a source whose functions are built."""
    bodies = cast("Mapping[str, str]", source.meta["bodies"])
    device = f"{machine()}, {torch.get_num_threads()} threads"

    def bound(each: Alternative) -> Callable[..., None]:
        return in_order(each, launches_of(each, lambda function: functions[function.name]), CPU)

    def key(group: GroupSpec) -> tuple[str, ...]:
        parts = [device, torch.__version__, *source.flags, repr(group.arguments)]
        for each in group.alternatives:
            parts.append(each.label)
            for part in each.parts:
                called = part.spec
                parts.append(
                    called.without_name if isinstance(called, LibrarySpec) else without_comments(bodies[called.name])
                )
        return tuple(parts)

    measure = partial(measured.measure, bound=bound, problems={}, place=CPU, timer=timer)
    return measured.Chooser(source, ctx, lambda group: device, key, measure)
