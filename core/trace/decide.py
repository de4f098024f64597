"""What a call of a Python object may become, in the order in which it is tried: handler, stand-in, verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from armature.callables import layers
from armature.rules import Verdict
from armature.trace.call import Handler, Polyfill

if TYPE_CHECKING:
    from armature.tables import Tables


@attrs.frozen(eq=False)
class Ways:
    """The ways to trace a call. A handler may decline; then the polyfill is next, then the verdict."""

    handler: Handler | None
    polyfill: Polyfill | None
    verdict: Verdict


def ways_to_call(fn: Callable[..., Any], tables: Tables) -> Ways:
    """The ways for this object. Handlers and stand-ins of a bound C method's descriptor count for the method too."""
    for layer in layers(fn):
        handler, polyfill = tables.handler(layer), tables.polyfill(layer)
        if handler is not None or polyfill is not None:
            return Ways(handler, polyfill, tables.rule_book.verdict(fn))
    return Ways(None, None, tables.rule_book.verdict(fn))
