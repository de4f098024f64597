"""Runs each model in a process forked from one that has imported the libraries; a crash or a timeout becomes a row."""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any

import attrs
import torch

PRELOADED = ["benchmarks.zoo.preload"]
LOG_TAIL = 3000
Row = dict[str, Any]


@attrs.frozen
class Job:
    """A model to be measured; `timeout` in seconds."""

    library: str
    name: str
    settings: Any
    timeout: float


@attrs.define(eq=False)
class Running:
    """A job and its process."""

    job: Job
    process: Any
    folder: Path
    started: float

    def row(self, ended: str = "") -> Row:
        """The row that the process wrote, and how it ended if it did not end normally."""
        try:
            row: Row = json.loads((self.folder / "row.json").read_text())
        except (OSError, ValueError):
            row = {"library": self.job.library, "name": self.job.name, "stage": "start"}
        if ended:
            row["ended"] = ended
            log = self.folder / "log.txt"
            row["log"] = log.read_text(errors="replace")[-LOG_TAIL:] if log.exists() else ""
        row["wall seconds"] = time.monotonic() - self.started
        return row


def in_child(folder: str, work: Callable[..., None], *arguments: Any) -> None:
    """Run in the forked process: with its own process group, and its output in a file."""
    os.setsid()
    log = os.open(os.path.join(folder, "log.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable(file=sys.__stderr__, all_threads=False)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # not before the fork, because threads do not survive it
    target = Path(folder) / "row.json"

    def report(row: Row) -> None:
        unfinished = target.with_suffix(".tmp")
        unfinished.write_text(json.dumps(row))
        unfinished.replace(target)

    try:
        work(*arguments, report)
    except BaseException:
        traceback.print_exc()
        os._exit(3)
    os._exit(0)  # skip cleanup: destructors of libraries are not what is measured


def context(preloaded: Sequence[str] | None) -> Any:
    """Processes from a server with preloaded modules; None: new ones, because CUDA does not survive a fork."""
    if preloaded is None:
        return multiprocessing.get_context("spawn")
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload([*preloaded])
    return made


def kill(process: Any) -> None:
    """Kill a process and its children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.join()


def ending(code: int | None) -> str:
    """How a process ended, in words; "" if normally."""
    if code == 0:
        return ""
    if code is not None and code < 0:
        return f"crashed: {signal.Signals(-code).name}"
    return f"exit status {code}"


def run_all(
    jobs: Sequence[Job],
    work: Callable[..., None],
    workers: int,
    deadline: float | None = None,
    preloaded: Sequence[str] | None = PRELOADED,
) -> Iterator[Row]:
    """Yield rows as they arrive. Jobs that have not ended at `deadline` (time.monotonic) yield rows that say so.

    `preloaded`: modules imported by the process from which jobs are forked; None: jobs are not forked.
    """
    waiting, running = deque(jobs), list[Running]()
    forks = context(preloaded)
    with tempfile.TemporaryDirectory(prefix="zoo-") as top:
        number = 0
        try:
            while waiting or running:
                late = deadline is not None and time.monotonic() > deadline
                while late and waiting:
                    job = waiting.popleft()
                    yield {"library": job.library, "name": job.name, "stage": "start", "ended": "not started in time"}
                while waiting and len(running) < workers:
                    job, folder = waiting.popleft(), Path(top, str(number))
                    number += 1
                    folder.mkdir()
                    process = forks.Process(
                        target=in_child, args=(str(folder), work, job.library, job.name, job.settings)
                    )
                    process.start()
                    running.append(Running(job, process, folder, time.monotonic()))
                connection.wait([one.process.sentinel for one in running], timeout=0.5)
                yield from _ended(running, late)
        finally:
            for one in running:
                kill(one.process)


def _ended(running: list[Running], late: bool) -> Iterator[Row]:
    for one in list(running):
        if one.process.exitcode is not None:
            one.process.join()
            ended = ending(one.process.exitcode)
        elif late:
            kill(one.process)
            ended = "stopped: the time for all models is over"
        elif time.monotonic() - one.started > one.job.timeout:
            kill(one.process)
            ended = f"over {one.job.timeout:.0f} s"
        else:
            continue
        running.remove(one)
        yield one.row(ended)
