"""Polyfills for the C helpers of collections and heapq. Heaps with the largest item first are left to Python."""

from __future__ import annotations

import collections
import heapq
from collections.abc import Callable, Iterable, MutableMapping

from armature_builtin_rules.polyfills.bisect import Ordered


def count_elements(mapping: MutableMapping[object, int], iterable: Iterable[object], /) -> None:
    """Count each item."""
    for item in iterable:
        mapping[item] = mapping.get(item, 0) + 1


def heappush(heap: list[Ordered], item: Ordered, /) -> None:
    """Add an item."""
    heap.append(item)
    _rise(heap, 0, len(heap) - 1)


def heappop(heap: list[Ordered], /) -> object:
    """Remove and return the smallest item."""
    _not_empty(heap)
    last = heap.pop()
    return heapreplace(heap, last) if heap else last


def heapreplace(heap: list[Ordered], item: Ordered, /) -> object:
    """Remove and return the smallest item, then add one."""
    _not_empty(heap)
    first = heap[0]
    heap[0] = item
    _sink(heap, 0)
    return first


def heappushpop(heap: list[Ordered], item: Ordered, /) -> object:
    """Add an item, then remove and return the smallest."""
    return heapreplace(heap, item) if heap and heap[0] < item else item


def _not_empty(heap: list[Ordered]) -> None:
    if not heap:
        raise IndexError("index out of range")


def heapify(heap: list[Ordered], /) -> None:
    """Turn a list into a heap."""
    for position in reversed(range(len(heap) // 2)):
        _sink(heap, position)


def _rise(heap: list[Ordered], start: int, position: int) -> None:
    item = heap[position]
    while position > start:
        parent = (position - 1) >> 1
        if not item < heap[parent]:
            break
        heap[position] = heap[parent]
        position = parent
    heap[position] = item


def _sink(heap: list[Ordered], position: int) -> None:
    # Down to a leaf along the smaller children, then up again, as CPython does: fewer comparisons, and the same order.
    start, end = position, len(heap)
    item = heap[position]
    child = 2 * position + 1
    while child < end:
        right = child + 1
        if right < end and not heap[child] < heap[right]:
            child = right
        heap[position] = heap[child]
        position = child
        child = 2 * position + 1
    heap[position] = item
    _rise(heap, start, position)


STAND_INS: tuple[tuple[Callable[..., object], Callable[..., object]], ...] = (
    (vars(collections)["_count_elements"], count_elements),
    (heapq.heappush, heappush),
    (heapq.heappop, heappop),
    (heapq.heapreplace, heapreplace),
    (heapq.heappushpop, heappushpop),
    (heapq.heapify, heapify),
)
