"""Records a running program: what is compiled, samples of memory and, on demand, each run of graphs and kernels."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import BinaryIO, Self

import attrs
import torch

from armature.frame.skip import OWN_FOLDER
from armature.pipeline.session import Records, Session, session
from armature.reports.collect import collected
from armature.reports.record import End, MemorySample, Recording
from armature.run.timeline import Timeline

SAMPLES = 2_000  # of memory; when there are more, every second one is dropped
EVERY = 0.05  # seconds between samples, at first


@attrs.define(eq=False)
class Recorder:
    """Records what a session does in the body of a `with`; `recording` then returns the record.

    program, arguments: the command that runs, for the report. runs: whether each run of a graph or kernel is timed. of:
    the session to follow. An error of the body is noted in the record, and not suppressed.
    """

    program: str = ""
    arguments: tuple[str, ...] = ()
    runs: bool = False
    of: Session = attrs.field(factory=session)
    records: Records = attrs.field(factory=Records)
    timeline: Timeline | None = None
    sampler: Sampler = attrs.field(factory=lambda: Sampler())
    began: float = 0.0
    seconds: float = 0.0
    folder: str = attrs.field(factory=os.getcwd)
    end: End = End.ENDED
    status: int = 0
    error: str = ""

    def __enter__(self) -> Self:
        self.began = time.perf_counter()
        self.of.followers.append(self.records)
        if self.runs:
            self.timeline = self.of.timeline = Timeline()
        self.sampler.start(self.began)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self.began
        self.sampler.stop()
        self.of.followers.remove(self.records)
        if self.timeline is not None and self.of.timeline is self.timeline:
            self.of.timeline = None
        if error is not None:
            self.end, self.status, self.error = End.RAISED, 1, shown(error)

    def exited(self, status: int) -> None:
        """Note that the program has ended by itself, with a status other than 0."""
        self.end, self.status = End.EXITED, status

    def recording(self) -> Recording:
        """The record."""
        made = collected(self.records, self.began, self.timeline)
        return attrs.evolve(
            made,
            program=self.program,
            arguments=self.arguments,
            end=self.end,
            status=self.status,
            error=self.error,
            seconds=self.seconds,
            folder=self.folder,
            memory=tuple(self.sampler.samples),
        )


def shown(error: BaseException) -> str:
    """The traceback, from the first line of the program on."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((k for k, frame in enumerate(frames) if not _is_around(frame.filename)), 0)
    found = traceback.TracebackException.from_exception(error)
    found.stack = traceback.StackSummary.from_list(frames[first:])
    return "".join(found.format()).rstrip()


def _is_around(file: str) -> bool:
    return file.startswith(f"{OWN_FOLDER}/") or file == "<frozen runpy>"


@attrs.define(eq=False)
class Sampler:
    """A thread that samples the memory of the process at intervals."""

    samples: list[MemorySample] = attrs.field(factory=list)
    every: float = EVERY
    _stopped: threading.Event = attrs.field(factory=threading.Event)
    _thread: threading.Thread | None = None
    _began: float = 0.0
    _devices: range = range(0)
    _memory: BinaryIO | None = None

    def start(self, began: float) -> None:
        """Start sampling. Times of samples are relative to `began`."""
        self._began = began
        self._memory = opened()
        if torch.accelerator.is_available():
            self._devices = range(torch.accelerator.device_count())
        self._take()
        self._thread = threading.Thread(target=self._run, name="armature-memory", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample, and end the thread."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        self._take()
        if self._memory is not None:
            self._memory.close()

    def _run(self) -> None:
        while not self._stopped.wait(self.every):
            self._take()

    def _take(self) -> None:
        at = time.perf_counter() - self._began
        self.samples.append(MemorySample(at, resident_bytes(self._memory), device_bytes(self._devices)))
        if len(self.samples) > SAMPLES:
            self.samples, self.every = thinned(self.samples), self.every * 2


def thinned(samples: Sequence[MemorySample]) -> list[MemorySample]:
    """Keep the larger one of each two neighbours, so that peaks remain."""
    return [max(samples[k : k + 2], key=lambda sample: sample.resident) for k in range(0, len(samples), 2)]


def opened() -> BinaryIO | None:
    """The file in /proc with this process's memory use, kept open because opening takes ten times as long as reading.
    None: there is no such file."""
    try:
        return open("/proc/self/statm", "rb", buffering=0)
    except OSError:
        return None


def resident_bytes(memory: BinaryIO | None) -> int:
    """Main memory used by this process in bytes; 0 if unknown."""
    if memory is None:
        return 0
    memory.seek(0)
    return int(memory.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def device_bytes(devices: Iterable[int]) -> int:
    """Bytes of tensors on accelerators. Does not initialise an accelerator that the program has not used."""
    return sum(map(torch.accelerator.memory_allocated, devices))
