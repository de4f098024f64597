"""Polyfills for bisect: the same comparisons in the same order."""

from __future__ import annotations

import bisect as original
from collections.abc import Callable, MutableSequence, Sequence
from typing import Protocol


class Ordered(Protocol):
    """An item that can be compared with others."""

    def __lt__(self, other: Ordered, /) -> bool: ...


Key = Callable[[Ordered], Ordered]


def bisect_right(
    a: Sequence[Ordered], x: Ordered, lo: int = 0, hi: int | None = None, *, key: Key | None = None
) -> int:
    """The insertion point after equal items."""
    if lo < 0:
        raise ValueError("lo must be non-negative")
    end = len(a) if hi is None or hi == -1 else hi  # the C code uses -1 for None
    while lo < end:
        middle = (lo + end) // 2
        if x < (a[middle] if key is None else key(a[middle])):
            end = middle
        else:
            lo = middle + 1
    return lo


def bisect_left(a: Sequence[Ordered], x: Ordered, lo: int = 0, hi: int | None = None, *, key: Key | None = None) -> int:
    """The insertion point before equal items."""
    if lo < 0:
        raise ValueError("lo must be non-negative")
    end = len(a) if hi is None or hi == -1 else hi
    while lo < end:
        middle = (lo + end) // 2
        if (a[middle] if key is None else key(a[middle])) < x:
            lo = middle + 1
        else:
            end = middle
    return lo


def insort_right(
    a: MutableSequence[Ordered], x: Ordered, lo: int = 0, hi: int | None = None, *, key: Key | None = None
) -> None:
    """Insert an item after equal ones."""
    a.insert(bisect_right(a, x if key is None else key(x), lo, hi, key=key), x)


def insort_left(
    a: MutableSequence[Ordered], x: Ordered, lo: int = 0, hi: int | None = None, *, key: Key | None = None
) -> None:
    """Insert an item before equal ones."""
    a.insert(bisect_left(a, x if key is None else key(x), lo, hi, key=key), x)


STAND_INS = (
    (original.bisect_right, bisect_right),
    (original.bisect_left, bisect_left),
    (original.insort_right, insort_right),
    (original.insort_left, insort_left),
)
