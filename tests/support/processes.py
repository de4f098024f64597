"""Programs of several processes, for tests of what talks over torch.distributed.

A test file holds scenarios, functions of `(rank, world)` that return plain values. `run` starts the file as a script in
each process, whose last line is `serve(SCENARIOS)`; the test looks at what they returned. Each scenario has a process
group of its own, so that one that fails does not disturb the next.
"""

from __future__ import annotations

import datetime
import os
import pickle
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # later, its functions' defaults would keep a group

import armature

_DIST: Any = dist  # not all that it has is in its types
Scenario = Callable[[int, int], Any]
ROOT = Path(__file__).resolve().parents[2]  # a script has the folder of its own on the path, not this one
PATIENCE = datetime.timedelta(seconds=30)  # of a process that waits for another one
LONGER = datetime.timedelta(seconds=120)  # where kernels for a GPU are built in between


@attrs.frozen
class Failed:
    """What a scenario raised in one process, as text."""

    text: str


def run(file: str | Path, count: int = 2, seconds: float = 240) -> dict[str, list[Any]]:
    """What each scenario of a file returned, by rank. Raises TimeoutError where a process has not ended in time, and
    RuntimeError where one has ended without results or a scenario has raised."""
    with tempfile.TemporaryDirectory() as folder:
        started = [_start(Path(file), rank, count, Path(folder)) for rank in range(count)]
        try:
            codes = _wait(started, time.monotonic() + seconds)
        finally:
            for process in started:
                process.kill()
                process.wait()
        ends = [(Path(folder) / f"said{rank}").read_text() for rank in range(count)]
        if any(codes):
            raise RuntimeError("\n".join([f"exit codes, by rank: {codes}", *ends]))
        found: list[dict[str, Any]] = [pickle.loads((Path(folder) / f"found{k}").read_bytes()) for k in range(count)]
    failures = ((name, k, was) for k in range(count) for name, was in found[k].items() if type(was) is Failed)
    if wrong := "\n".join(f"{name}, rank {k}:\n{was.text}" for name, k, was in failures):
        raise RuntimeError(wrong)
    return {name: [ranks[name] for ranks in found] for name in found[0]}


def _start(file: Path, rank: int, count: int, folder: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    own = {"RANK": str(rank), "WORLD_SIZE": str(count), "PROCESSES_FOLDER": str(folder), "OMP_NUM_THREADS": "1"}
    own |= {"PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"}  # a crash says where
    with (folder / f"said{rank}").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, str(file)], env={**os.environ, **own}, stdout=said, stderr=subprocess.STDOUT
        )


def _wait(started: list[subprocess.Popen[bytes]], end: float) -> list[int | None]:
    """Exit codes, once all have ended or one has failed, for which the others would wait in vain."""
    while None in (codes := [process.poll() for process in started]) and not any(codes):
        if time.monotonic() > end:
            late = [rank for rank, code in enumerate(codes) if code is None]
            raise TimeoutError(f"processes {late} have not ended in time: they may wait for one another")
        time.sleep(0.05)
    return codes


def serve(scenarios: Mapping[str, Scenario], backend: str = "gloo") -> None:
    """Run the scenarios in one of the processes, which with the back end "nccl" has the GPU of its rank."""
    rank, world, folder = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), Path(os.environ["PROCESSES_FOLDER"])
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    store = _DIST.FileStore(str(folder / "store"), world)
    found = {name: _one(name, scenario, rank, world, store, backend) for name, scenario in scenarios.items()}
    (folder / f"found{rank}").write_bytes(pickle.dumps(found))


def _one(name: str, scenario: Scenario, rank: int, world: int, store: Any, backend: str) -> Any:
    own, patience = _DIST.PrefixStore(name, store), PATIENCE if backend == "gloo" else LONGER
    dist.init_process_group(backend, store=own, rank=rank, world_size=world, timeout=patience)
    try:
        return scenario(rank, world)
    except Exception:
        return Failed(traceback.format_exc())
    finally:
        armature.reset()  # guards keep the group, whose threads must end before the interpreter does
        dist.destroy_process_group()
