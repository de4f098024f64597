"""Notifications about a compilation: events and stage timings for observers, warnings for the user."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import TypeVar

from armature import interrupts
from armature.context import CompileContext
from armature.errors import ArmatureWarning
from armature.events import CompileEvent, EventKind
from armature.pipeline.session import Compilation, session

T = TypeVar("T")


def timed(record: Compilation, stage: str, ctx: CompileContext, work: Callable[[], T]) -> T:
    """The result of the work; observers are told the stage and its duration. Errors: GivenUp, before the work."""
    interrupts.check()
    start = time.perf_counter()
    result = work()
    ctx.emit(event_of(record, EventKind.STAGE, stage, time.perf_counter() - start, ctx.compile_id))
    return result


def event_of(
    record: Compilation, kind: EventKind, detail: str = "", seconds: float = 0.0, compile_id: int | None = None
) -> CompileEvent:
    """An event about the compilation of a record."""
    number = record.id if compile_id is None else compile_id
    return CompileEvent(kind, number, record.function, record.file, record.line, detail, seconds)


def warn_once(record: Compilation, what: object, text: str) -> None:
    """Warn at the function that is compiled, once per `what`."""
    if session().first_time(what):
        warnings.warn_explicit(text, ArmatureWarning, record.file, record.line)
