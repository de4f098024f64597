"""Stand-ins for functions of inspect that look at objects by means that are not traced."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any


class _Wrapping:
    __wrapped__ = None


UNWRAPS_CLASSES = inspect.unwrap(_Wrapping) is None  # until Python 3.13
LONG = 100  # a chain of wrappers for which it may matter where Python's limit is


def unwrap(func: Any, *, stop: Callable[[Any], Any] | None = None) -> Any:
    """What a function wraps, at the end of the chain."""
    first, seen = func, {id(func): func}
    while (UNWRAPS_CLASSES or not isinstance(func, type)) and hasattr(func, "__wrapped__"):
        if stop is not None and stop(func):
            break
        func = func.__wrapped__
        if id(func) in seen or (len(seen) >= LONG and len(seen) >= sys.getrecursionlimit()):
            raise ValueError(f"wrapper loop when unwrapping {first!r}")
        seen[id(func)] = func
    return func


STAND_INS: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = ((inspect.unwrap, unwrap),)
