"""Stand-ins for C functions of functools."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

_NOTHING = object()


def reduce(function: Callable[[Any, Any], Any], iterable: Iterable[Any], initial: Any = _NOTHING, /) -> Any:
    """Fold from the left."""
    items = iter(iterable)
    if initial is _NOTHING:
        try:
            result = next(items)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    else:
        result = initial
    for item in items:
        result = function(result, item)
    return result


class _Ordered:
    """An item that a function compares with others."""

    __slots__ = ("compare", "obj")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, compare: Callable[[Any, Any], Any], obj: Any) -> None:
        self.compare, self.obj = compare, obj

    def __lt__(self, other: _Ordered) -> bool:
        return bool(self.compare(self.obj, other.obj) < 0)

    def __gt__(self, other: _Ordered) -> bool:
        return bool(self.compare(self.obj, other.obj) > 0)

    def __eq__(self, other: object) -> bool:
        return bool(self.compare(self.obj, other.obj) == 0)  # type: ignore[attr-defined]

    def __le__(self, other: _Ordered) -> bool:
        return bool(self.compare(self.obj, other.obj) <= 0)

    def __ge__(self, other: _Ordered) -> bool:
        return bool(self.compare(self.obj, other.obj) >= 0)


def cmp_to_key(mycmp: Callable[[Any, Any], Any]) -> Callable[[Any], _Ordered]:
    """A key to sort by for a function that compares two items."""
    return lambda obj: _Ordered(mycmp, obj)


STAND_INS: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = (
    (functools.reduce, reduce),
    (functools.cmp_to_key, cmp_to_key),
)
