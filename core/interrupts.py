"""Defers Ctrl-C while compiling to the next step: raised in the middle of torch's C++, it could end the process.

At that step the program is stopped; with the setting `eager_on_interrupt`, compilation is given up instead, and the
program continues eagerly. Loops that may run for long, over the operators of a graph or over traced instructions, call
`check` in each iteration. Modes that torch's dispatcher calls for each operator do not: C++ code that lets no exception
out would end the process.
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
class DeferredSignals:
    """The SIGINTs received during a compilation, and the program's handler for them."""

    handler: Handler
    signals: list[tuple[int, FrameType | None]] = attrs.field(factory=list)

    def defer(self, number: int, frame: FrameType | None) -> None:
        """Replaces the handler: defers the first signal, and passes later ones to the handler at once."""
        if self.signals:
            self.handler(number, frame)
        self.signals.append((number, frame))

    def serve(self) -> None:
        """Call the handler with the deferred signal. Errors: its own; Python's raises KeyboardInterrupt."""
        if self.signals:
            first, self.signals = self.signals[0], []
            self.handler(*first)


_PENDING: ContextVar[DeferredSignals | None] = ContextVar("armature_interrupts", default=None)


class GivenUp(BaseException):
    """Compilation is given up because the user pressed Ctrl-C; the program runs eagerly from now on.

    It does not derive from Exception, because the code that runs plugins and operators handles those as their errors.
    """


def check() -> None:
    """Stop if Ctrl-C was pressed since the compilation began; continue if the program's handler raises nothing.

    Errors: GivenUp with the setting `eager_on_interrupt`, otherwise those of the handler.
    """
    pending = _PENDING.get()
    if pending is None or not pending.signals:
        return
    if config.current().eager_on_interrupt:
        raise GivenUp("Ctrl-C was pressed while compiling: the program goes on eagerly")
    pending.serve()


def checking(fn: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function to call `check` first."""

    @functools.wraps(fn)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        check()
        return fn(*args, **kwargs)

    return checked


@contextmanager
def deferred() -> Iterator[None]:
    """A context that defers the first SIGINT to the next `check`, or to its end; a second one is handled at once. No
    effect outside the main thread."""
    before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(before):
        yield
        return
    pending = DeferredSignals(before)
    token = _PENDING.set(pending)
    signal.signal(signal.SIGINT, pending.defer)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _PENDING.reset(token)
        if not config.current().eager_on_interrupt:
            pending.serve()
