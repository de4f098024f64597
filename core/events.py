"""Compile events for observers (`armature_compile_event`). Observers cannot change anything."""

from __future__ import annotations

import time
from enum import Enum

import attrs


class EventKind(Enum):
    """What happened."""

    START = "start"
    FINISH = "finish"
    RECOMPILE = "recompile"
    CACHE_HIT = "cache_hit"
    CACHE_REBUILD = "cache_rebuild"
    FALLBACK = "fallback"
    SKIP = "skip"
    STAGE = "stage"
    REPLAY = "replay"


@attrs.frozen
class CompileEvent:
    """One event of one compilation. `seconds` is set on FINISH and STAGE; `detail`: the stage, guard, file or reason;
    for REPLAY, the graph that was recorded, or why it is not.

    at: when it was made, in seconds of `time.perf_counter`; for a stage, its end.
    """

    kind: EventKind
    compile_id: int
    function: str
    file: str
    line: int
    detail: str = ""
    seconds: float = 0.0
    at: float = attrs.field(factory=time.perf_counter, eq=False)
