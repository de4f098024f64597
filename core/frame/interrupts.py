"""Ctrl-C while compiling: kept until the compilation is over, since torch's C++ does not survive it at any point."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held() -> Iterator[None]:
    """Keep the first SIGINT for the end; a second one is served at once. Nothing happens outside the main thread."""
    before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(before):
        yield
        return
    kept: list[tuple[int, FrameType | None]] = []

    def keep(number: int, frame: FrameType | None) -> None:
        if kept:
            before(number, frame)
        kept.append((number, frame))

    signal.signal(signal.SIGINT, keep)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if kept:
            before(*kept[0])
