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


STAND_INS = ((functools.reduce, reduce),)
