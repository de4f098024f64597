"""Python's collector of reference cycles, which is paused while armature compiles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """A context in which garbage collection is off, unless the program switches it on.

    A compilation makes many objects that live to its end, and each full collection visits all objects of the process:
    a third of the time that Python takes for a chain of 2,000 operators, and of a process's first compilation.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
