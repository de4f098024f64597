"""`python -m benchmarks.tracing --beside CHECKOUT`: CPU time of tracing the models of the zoo, in two trees in turns.

Measured is the first call with backend="eager" after a reset, beyond an eager call; in "train" with gradients on. Each
tree (that with a `.venv` of its own) has one process, which runs the models of this one. The fastest call counts.
"""

from __future__ import annotations

import gc
import logging
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer

import armature
from benchmarks.models import ZOO

ROOT = Path(__file__).resolve().parents[1]
START = "import sys; sys.path[0] = sys.argv[1]; from benchmarks.tracing import serve; serve()"


def seconds(call: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def tracer(name: str, mode: str) -> Callable[[], float]:
    """Traces a model; returns CPU seconds beyond an eager call."""
    torch.manual_seed(0)
    case = ZOO[name]()
    case.model.train(mode == "train").requires_grad_()

    def call(model: Callable[..., object]) -> float:
        with torch.set_grad_enabled(mode == "train"):
            return seconds(lambda: model(*case.args, **case.kwargs))

    eager = statistics.median(call(case.model) for _ in range(8))

    def trace() -> float:
        armature.reset()
        gc.collect()
        return call(armature.compile(case.model, backend="eager")) - eager

    return trace


def serve() -> None:
    """Answer each line: "MODEL MODE" chooses a model, "" traces it."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    trace = None
    for line in sys.stdin:
        trace = tracer(*line.split()) if line.strip() else trace
        print(trace() if trace else "", flush=True)


def started(tree: Path) -> subprocess.Popen[str]:
    """A process that traces with the package of a tree."""
    command = [str(tree / ".venv/bin/python"), "-c", START, str(ROOT)]
    return subprocess.Popen(
        command,
        cwd=ROOT / "benchmarks",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def asked(process: subprocess.Popen[str], line: str) -> float:
    """What a process answers."""
    if process.stdin is None or process.stdout is None:
        raise ValueError("the process has no pipes")
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main(
    beside: Annotated[Path, typer.Option(help="another checkout to measure alternately with this one")],
    models: Annotated[str, typer.Option(help="comma-separated names; all by default")] = ",".join(ZOO),
    modes: Annotated[str, typer.Option(help="infer, train")] = "infer,train",
    rounds: Annotated[int, typer.Option(help="traces of each model in each tree")] = 5,
) -> None:
    """Measure and print."""
    if unknown := set(models.split(",")) - set(ZOO):
        raise typer.BadParameter(f"no such models: {', '.join(sorted(unknown))}; there are {', '.join(ZOO)}")
    trees = {"this": started(ROOT), "beside": started(beside.resolve())}
    for mode in modes.split(","):
        ratios = []
        for name in models.split(","):
            runs: dict[str, list[float]] = {tree: [] for tree in trees}
            for process in trees.values():
                asked(process, f"{name} {mode}")
            for number in range(rounds):
                for tree in list(trees)[:: 1 if number % 2 else -1]:
                    runs[tree].append(asked(trees[tree], "") * 1e3)
            ours, theirs = min(runs["this"]), min(runs["beside"])
            ratios.append(ours / theirs)
            print(f"{name:28} {mode:6} this {ours:7.1f} beside {theirs:7.1f} ms {ours / theirs:5.2f}", flush=True)
        print(f"{mode}, geometric mean {statistics.geometric_mean(ratios):.3f}", flush=True)


if __name__ == "__main__":
    typer.run(main)
