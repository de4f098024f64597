"""Ctrl-C while compiling is deferred until the compilation is over, because torch's C++ code can't be interrupted
safely.

Then the program is stopped. If the setting `eager_on_interrupt` is on, compiling is instead given up at the next stage,
and the program continues without it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

from armature import config

Pending = list[tuple[int, FrameType | None]]
_PENDING: ContextVar[Pending | None] = ContextVar("armature_interrupts", default=None)


class GivenUp(Exception):
    """Compiling is given up, and the program runs eagerly from now on, because the user pressed Ctrl-C."""


def check() -> None:
    """Raise GivenUp if Ctrl-C was pressed since compiling began and the program is to continue."""
    if _PENDING.get() and config.current().eager_on_interrupt:
        raise GivenUp("Ctrl-C was pressed while compiling: the program goes on eagerly")


@contextmanager
def held() -> Iterator[None]:
    """Defer the first SIGINT to the end; a second one is handled at once. Does nothing outside the main thread."""
    before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(before):
        yield
        return
    pending: Pending = []
    token = _PENDING.set(pending)

    def keep(number: int, frame: FrameType | None) -> None:
        if pending:
            before(number, frame)
        pending.append((number, frame))

    signal.signal(signal.SIGINT, keep)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _PENDING.reset(token)
        if pending and not config.current().eager_on_interrupt:
            before(*pending[0])
