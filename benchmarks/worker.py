"""One measurement in a process of its own; prints one line of JSON. Called by benchmarks.run."""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._C._profiler import _EventType

from benchmarks.compilers import SCALING_FUNCTIONS, compile_with, scaling_case

Thunk = Callable[[], object]


def thunk_of(name: str, mode: str, compiler: str) -> Thunk:
    """A call that runs the model once: "infer" under no_grad, "train" forward and backward."""
    from benchmarks.models import MEASURED  # noqa: PLC0415  transformers is slow to import

    torch.manual_seed(0)
    case = MEASURED[name]()
    case.model.train(mode == "train")
    compiled = compile_with(compiler, case.model)

    def infer() -> object:
        with torch.no_grad():
            return compiled(*case.args, **case.kwargs)

    def train() -> object:
        case.model.zero_grad(set_to_none=True)
        loss = case.loss(compiled(*case.args, **case.kwargs))
        loss.backward()
        return loss.detach()

    return infer if mode == "infer" else train


def seconds(thunk: Thunk, repeats: int = 1) -> float:
    """Wall seconds of one call, averaged over `repeats` in a row."""
    start = time.perf_counter()
    for _ in range(repeats):
        thunk()
    return (time.perf_counter() - start) / repeats


def steady(name: str, mode: str, compilers: list[str], budget: float, memory_too: bool = False) -> dict[str, Any]:
    """Median seconds per call for each compiler, measured alternately; `budget` seconds in all. With `memory_too`, the
    bytes at the peak of a call as well."""
    thunks = {c: thunk_of(name, mode, c) for c in compilers}
    for thunk in thunks.values():
        for _ in range(3):
            thunk()
    once = max(seconds(thunks["eager"]), 1e-7)
    repeats = max(1, int(0.02 / once))
    rounds = max(5, min(200, int(budget / (once * repeats * len(thunks)))))
    times: dict[str, list[float]] = {c: [] for c in thunks}
    for _ in range(rounds):
        for compiler, thunk in thunks.items():
            times[compiler].append(seconds(thunk, repeats))
    medians = {c: statistics.median(t) for c, t in times.items()}
    ratios = {c: statistics.median(e / t for e, t in zip(times["eager"], times[c], strict=True)) for c in times}
    found = {"seconds": medians, "speedup": ratios, "rounds": rounds, "repeats": repeats}
    return found | {"bytes": {c: peak_bytes(thunk) for c, thunk in thunks.items()}} if memory_too else found


def cold(name: str, mode: str, compiler: str) -> dict[str, Any]:
    """Seconds from before the compiler's import to the end of the first call, minus one eager call."""
    eager = thunk_of(name, mode, "eager")
    eager()
    once = seconds(eager)
    start = time.perf_counter()
    thunk_of(name, mode, compiler)()
    return {"seconds": time.perf_counter() - start - once}


def peak_bytes(thunk: Thunk) -> int:
    """The peak of the memory that a call itself allocates, by the allocator's own record. What was there before does
    not count, nor does freeing it: the allocator remembers what an earlier profile saw, though it may be gone."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        thunk()
    assert profile.profiler is not None
    held: dict[int, int] = {}
    now = highest = 0
    for event in allocations(profile.profiler.kineto_results.experimental_event_tree()):
        place, size = event.extra_fields.ptr, event.extra_fields.alloc_size
        if size > 0:
            held[place] = size
            now += size
            highest = max(highest, now)
        else:
            now -= held.pop(place, 0)
    return highest


def allocations(tree: Iterable[Any]) -> list[Any]:
    """The allocations and releases among a profile's events, in their order."""
    found, left = [], list(tree)
    while left:
        event = left.pop()
        left += event.children
        if event.tag == _EventType.Allocation:
            found.append(event)
    return sorted(found, key=lambda event: event.start_time_ns)


def memory(name: str, mode: str, compilers: list[str]) -> dict[str, Any]:
    """Bytes at the peak of one call for each compiler, beyond what was allocated before."""
    found = {}
    for compiler in compilers:
        thunk = thunk_of(name, mode, compiler)
        for _ in range(3):
            thunk()
        found[compiler] = peak_bytes(thunk)
    return {"bytes": found}


def scaling(graph: str, steps: int, compiler: str, before: int = 0) -> dict[str, Any]:
    """Seconds of the first call of a generated graph; the processor's seconds in this process and in the compilers that
    it starts, which other programs disturb less. before: steps of a graph that is compiled first, so that imports do
    not count."""
    function = SCALING_FUNCTIONS[graph]
    if before:
        scaling_case(graph, before)(compile_with(compiler, function))()
    start, own, built = time.perf_counter(), time.process_time(), processor_of_children()
    scaling_case(graph, steps)(compile_with(compiler, function))()
    return {
        "seconds": time.perf_counter() - start,
        "process_seconds": time.process_time() - own,
        "build_seconds": processor_of_children() - built,
    }


def processor_of_children() -> float:
    """Seconds of the processor that ended child processes have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def overhead(compiler: str) -> dict[str, Any]:
    """Microseconds per call of a tiny function, bare and compiled, alternately; the minimum of many rounds."""

    def tiny(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    x = torch.ones(4)
    compiled = compile_with(compiler, tiny)
    for _ in range(100):
        compiled(x)
        tiny(x)
    bare, wrapped = [], []
    for _ in range(200):
        bare.append(seconds(lambda: tiny(x), 1000))
        wrapped.append(seconds(lambda: compiled(x), 1000))
    return {
        "bare_us": statistics.median(bare) * 1e6,
        "compiled_us": statistics.median(wrapped) * 1e6,
        "extra_us": statistics.median(w - b for b, w in zip(bare, wrapped, strict=True)) * 1e6,
    }


def main() -> None:
    kind, arguments = sys.argv[1], json.loads(sys.argv[2])
    table: dict[str, Callable[..., dict[str, Any]]] = {
        "steady": steady,
        "cold": cold,
        "memory": memory,
        "scaling": scaling,
        "overhead": overhead,
    }
    print(json.dumps(table[kind](**arguments)))


if __name__ == "__main__":
    main()
