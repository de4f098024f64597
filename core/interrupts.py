"""Ctrl-C while compiling: kept until the next step, since torch's C++ does not survive it at any point.

Then the program is stopped; where the setting `eager_on_interrupt` says so, compiling is given up instead, and the
program goes on without it. Loops that may run for long, over the operators of a graph and over what is traced, ask
`check` in each round. Modes that torch's dispatcher calls for each operator do not: where C++ lets no exception out,
one would end the process.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import ParamSpec, TypeVar

import attrs

from armature import config

P = ParamSpec("P")
T = TypeVar("T")
Handler = Callable[[int, FrameType | None], object]


@attrs.define(eq=False)
class Pending:
    """What was pressed while a compilation is under way, and what the program does then."""

    handler: Handler
    pressed: list[tuple[int, FrameType | None]] = attrs.field(factory=list)

    def keep(self, number: int, frame: FrameType | None) -> None:
        """Stand in for the handler: keep the first one, serve others at once."""
        if self.pressed:
            self.handler(number, frame)
        self.pressed.append((number, frame))

    def serve(self) -> None:
        """Call the handler for what was kept. Errors: its own, KeyboardInterrupt if it is Python's."""
        if self.pressed:
            first, self.pressed = self.pressed[0], []
            self.handler(*first)


_PENDING: ContextVar[Pending | None] = ContextVar("armature_interrupts", default=None)


class GivenUp(BaseException):
    """Compiling is given up, and the program runs eagerly from now on, because the user has pressed Ctrl-C.

    No Exception: what runs a plugin or an operator takes those for an error of its own.
    """


def check() -> None:
    """Stop if Ctrl-C was pressed since compiling began; go on where the program's handler only takes note of it.

    Errors: GivenUp where the program is to go on, else those of its handler.
    """
    pending = _PENDING.get()
    if pending is None or not pending.pressed:
        return
    if config.current().eager_on_interrupt:
        raise GivenUp("Ctrl-C was pressed while compiling: the program goes on eagerly")
    pending.serve()


def checking(fn: Callable[P, T]) -> Callable[P, T]:
    """The function, which asks before it begins."""

    @functools.wraps(fn)
    def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        check()
        return fn(*args, **kwargs)

    return asked


@contextmanager
def held() -> Iterator[None]:
    """Keep the first SIGINT for the next `check`, or the end; a second one is served at once. Nothing happens outside
    the main thread."""
    before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(before):
        yield
        return
    pending = Pending(before)
    token = _PENDING.set(pending)
    signal.signal(signal.SIGINT, pending.keep)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _PENDING.reset(token)
        if not config.current().eager_on_interrupt:
            pending.serve()
