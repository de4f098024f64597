"""One measurement of the front ends in a process of its own; prints one line of JSON. Called by benchmarks.frontend."""

from __future__ import annotations

import json
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch._dynamo.utils import counters

import armature
from armature.plugin_api import BreakEvent, hookimpl
from armature.plugins import manager

Thunk = Callable[[], object]
COMPILERS = ("torch.compile", "armature")
MODES = ("infer", "train")
TOLERANCE = 1e-4


@attrs.define(eq=False)
class Breaks:
    """A plugin that records armature's graph breaks."""

    events: list[BreakEvent] = attrs.field(factory=list)

    @hookimpl
    def armature_graph_break(self, event: BreakEvent) -> None:
        """Keep it."""
        self.events.append(event)


def reset(compiler: str) -> None:
    """Forget everything compiled."""
    if compiler == "armature":
        armature.reset()
    else:
        torch._dynamo.reset()
        counters.clear()


def compiled_with(compiler: str, fn: Any, backend: Any) -> Any:
    """`fn` under a compiler's front end."""
    return (armature.compile if compiler == "armature" else torch.compile)(fn, backend=backend)


def thunk_of(case: Any, mode: str, compiled: Any) -> Callable[[], torch.Tensor]:
    """A call of the model and its loss; "train" in training mode with a backward pass."""

    def infer() -> torch.Tensor:
        with torch.no_grad():
            return case.loss(compiled(*case.args, **case.kwargs))

    def train() -> torch.Tensor:
        case.model.zero_grad(set_to_none=True)
        loss: torch.Tensor = case.loss(compiled(*case.args, **case.kwargs))
        if loss.requires_grad:
            loss.backward()
        return loss

    return train if mode == "train" else infer


def seconds(thunk: Thunk) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    thunk()
    return time.perf_counter() - start


def count(compiler: str, case: Any, mode: str) -> dict[str, Any]:
    """Graphs and breaks of one call, and whether the loss is that of eager mode."""
    graphs: list[object] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch.manual_seed(1)
    expected = thunk_of(case, mode, case.model)()
    reset(compiler)
    torch.manual_seed(1)
    seen = Breaks()
    with manager().registered(seen, "benchmarks"):
        found = thunk_of(case, mode, compiled_with(compiler, case.model, backend))()
    breaks = len(seen.events) if compiler == "armature" else sum(counters["graph_break"].values())
    right = torch.allclose(expected, found, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    return {"graphs": len(graphs), "breaks": breaks, "right": right}


def model(name: str, mode: str, rounds: int) -> dict[str, Any]:
    """Graphs, breaks and seconds of tracing for both compilers, measured alternately with warm caches."""
    from benchmarks.models import ZOO  # noqa: PLC0415  transformers is optional, and slow to import

    torch.manual_seed(0)
    case = ZOO[name]()
    case.model.train(mode == "train")
    eager = thunk_of(case, mode, case.model)
    for _ in range(3):
        eager()
    once = statistics.median(seconds(eager) for _ in range(5))
    found: dict[str, Any] = {compiler: count(compiler, case, mode) for compiler in COMPILERS}
    times: dict[str, list[float]] = {compiler: [] for compiler in COMPILERS}
    for number in range(rounds):
        for compiler in COMPILERS if number % 2 else COMPILERS[::-1]:
            reset(compiler)
            times[compiler].append(seconds(thunk_of(case, mode, compiled_with(compiler, case.model, "eager"))) - once)
    for compiler in COMPILERS:
        found[compiler]["seconds"] = statistics.median(times[compiler])
    return found


def overhead() -> dict[str, Any]:
    """Microseconds per call of a tiny function, bare and compiled, measured alternately."""

    def tiny(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def batch(fn: Callable[[torch.Tensor], torch.Tensor]) -> float:
        return seconds(lambda: [fn(x) for _ in range(1000)]) * 1e3

    x = torch.ones(4)
    functions: dict[str, Any] = {"bare": tiny} | {c: compiled_with(c, tiny, "eager") for c in COMPILERS}
    for fn in functions.values():
        batch(fn)
    rows = [{name: batch(fn) for name, fn in functions.items()} for _ in range(200)]
    medians = {name: statistics.median(row[name] for row in rows) for name in functions}
    extra = {c: statistics.median(row[c] - row["bare"] for row in rows) for c in COMPILERS}
    return {"microseconds": medians, "extra": extra}


def main() -> None:
    kind, arguments = sys.argv[1], json.loads(sys.argv[2])
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    table: dict[str, Callable[..., dict[str, Any]]] = {"model": model, "overhead": overhead}
    print(json.dumps(table[kind](**arguments)))


if __name__ == "__main__":
    main()
