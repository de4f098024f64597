"""The record as a trace in Chrome's format, which Perfetto opens: compilations and runs on one time line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from armature.reports.record import Recording, Span

PROCESS = 1
COMPILING = 1  # lanes: one for the compiler, then one for each thread of the program
RUNNING = 2
WHILE_RUNNING = ("graph", "kernel")


def as_trace(recording: Recording) -> str:
    """The trace as JSON text."""
    about = {"problems": list(recording.problems)} if recording.problems else {}
    return json.dumps({"traceEvents": list(trace_events(recording)), "displayTimeUnit": "ms", "otherData": about})


def trace_events(recording: Recording) -> Iterator[dict[str, Any]]:
    """The events of the trace: complete events for spans of time, counters for memory, and names of the lanes. Times in
    microseconds."""
    yield named("process_name", 0, f"armature {recording.program}".strip())
    threads = sorted({span.thread for span in recording.spans if span.kind in WHILE_RUNNING})
    yield named("thread_name", COMPILING, "compile")
    yield from (named("thread_name", RUNNING + thread, f"run {thread}" if thread else "run") for thread in threads)
    yield from (complete(recording, span) for span in recording.spans)
    yield from instants(recording)
    for sample in recording.memory:
        counters = {"resident MiB": sample.resident / 2**20, "device MiB": sample.device / 2**20}
        yield {"ph": "C", "pid": PROCESS, "name": "memory", "ts": sample.at * 1e6, "args": counters}


def named(what: str, lane: int, name: str) -> dict[str, Any]:
    """The name of the process or of a lane."""
    return {"ph": "M", "pid": PROCESS, "tid": lane, "name": what, "args": {"name": name}}


def complete(recording: Recording, span: Span) -> dict[str, Any]:
    """An event with a duration."""
    event = {
        "ph": "X",
        "pid": PROCESS,
        "tid": RUNNING + span.thread if span.kind in WHILE_RUNNING else COMPILING,
        "name": span.name,
        "cat": span.kind,
        "ts": span.start * 1e6,
        "dur": span.seconds * 1e6,
    }
    if span.frame is None:
        return event
    frame = recording.frames[span.frame]
    return event | {"args": {"frame": f"{frame.function} {frame.where}", "outcome": frame.outcome.value}}


def instants(recording: Recording) -> Iterator[dict[str, Any]]:
    """Graph breaks and recompilations, as instant events in the compiler's lane."""
    for frame in recording.frames:
        mark = {"ph": "i", "pid": PROCESS, "tid": COMPILING, "s": "t", "ts": frame.at * 1e6}
        for number in frame.breaks:
            one = recording.breaks[number]
            yield mark | {"name": f"graph break: {one.type}", "cat": "break", "args": {"why": one.explanation}}
        for failure in frame.failures:
            yield mark | {
                "name": f"compiled again: {failure.expression or failure.words}",
                "cat": "recompile",
                "args": {"why": failure.words},
            }
