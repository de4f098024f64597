"""A pool of threads that build kernels while tracing continues; compiler processes do the work, not Python."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import attrs

P = ParamSpec("P")
T = TypeVar("T")


@attrs.define(eq=False)
class Workers:
    """Runs at most `threads` tasks at once. The pool starts with the first task and stops with the process."""

    threads: int
    _pool: ThreadPoolExecutor | None = attrs.field(default=None, init=False)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start `fn(*args, **kwargs)`; the future has its result or raises its error."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max(1, self.threads), thread_name_prefix="armature-build")
        return self._pool.submit(fn, *args, **kwargs)

    def close(self) -> None:
        """Wait for running tasks, and stop the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None
