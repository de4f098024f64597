"""Polyfills for C functions of functools."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from armature_builtin_rules.polyfills.itertools import rest

_NOTHING = object()


def reduce(
    function: Callable[[object, object], object], iterable: Iterable[object], initial: object = _NOTHING, /
) -> object:
    """Fold from the left."""
    try:
        items = iter(iterable)
    except TypeError:
        raise TypeError("reduce() arg 2 must support iteration") from None
    if initial is _NOTHING:
        try:
            result = next(items)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    else:
        result = initial
    for item in rest(items):
        result = function(result, item)
    return result


class _Ordered:
    """An item that is compared by a function."""

    __slots__ = ("compare", "obj")

    def __init__(self, compare: Callable[[object, object], float], obj: object) -> None:
        self.compare, self.obj = compare, obj

    def __lt__(self, other: _Ordered) -> bool:
        return bool(self.compare(self.obj, other.obj) < 0)

    def __gt__(self, other: _Ordered) -> bool:
        return bool(self.compare(self.obj, other.obj) > 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Ordered):
            raise TypeError("other argument must be K instance")
        return bool(self.compare(self.obj, other.obj) == 0)

    def __le__(self, other: _Ordered) -> bool:
        return bool(self.compare(self.obj, other.obj) <= 0)

    def __ge__(self, other: _Ordered) -> bool:
        return bool(self.compare(self.obj, other.obj) >= 0)


def cmp_to_key(mycmp: Callable[[object, object], float]) -> Callable[[object], _Ordered]:
    """A sort key for a function that compares two items."""
    return lambda obj: _Ordered(mycmp, obj)


def _key(args: tuple[object, ...], named: dict[str, object], typed: bool) -> object:
    """The key of a cached result: a single int or str never equals a float or a bool."""
    if not named and not typed and len(args) == 1 and type(args[0]) in (int, str):
        return args[0]
    key: tuple[object, ...] = (args, tuple(named.items()))
    if typed:
        key += (tuple([type(value) for value in args]), tuple([type(value) for value in named.values()]))
    return key


def lru_cache_wrapper(
    function: Callable[..., object], maxsize: int | None, typed: bool, info: Callable[..., object]
) -> object:
    """A function that caches results; the last ones if `maxsize` is an int."""
    if not callable(function):
        raise TypeError("the first argument must be callable")
    kept: dict[object, object] = {}
    hits = misses = 0

    def cached(*args: object, **named: object) -> object:
        nonlocal hits, misses
        key = _key(args, named, typed)
        found = kept.pop(key, _NOTHING)
        if found is not _NOTHING:
            hits += 1
            kept[key] = found
            return found
        misses += 1
        made = function(*args, **named)
        if maxsize != 0:
            kept[key] = made
        if maxsize is not None and len(kept) > maxsize:
            del kept[next(iter(kept))]
        return made

    def cache_info() -> object:
        return info(hits, misses, maxsize, len(kept))

    def cache_clear() -> None:
        nonlocal hits, misses
        kept.clear()
        hits = misses = 0

    made: Any = cached
    made.cache_info = cache_info
    made.cache_clear = cache_clear
    return made


STAND_INS: tuple[tuple[Callable[..., object], Callable[..., object]], ...] = (
    (functools.reduce, reduce),
    (functools.cmp_to_key, cmp_to_key),
    (type(functools.lru_cache(len)), lru_cache_wrapper),
)
