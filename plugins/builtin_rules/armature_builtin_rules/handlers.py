"""Functions of the standard library that act on the world, where the act can be done while tracing."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from armature.plugin_api import Call, Value, handles

EACH_TIME = frozenset({"error", "always", "all"})


@handles(warnings.warn)
def warn(call: Call, message: Value, category: Value | None = None, *args: Value, **kwargs: Value) -> Value | None:
    """Warn while tracing, where Python would show the warning once. One that is shown each time breaks the graph."""
    if not message.is_constant:
        return None
    kind = UserWarning if category is None or category.is_constant else category.as_object()
    if not isinstance(kind, type) or not issubclass(kind, Warning):
        return None
    text, frame = str(message.as_constant()), call.tracer.frames[-1]
    module = str(frame.namespace.get("__name__", "<string>"))
    if action(text, kind, module, frame.line) in EACH_TIME:
        return None
    registry = frame.namespace.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, kind, frame.code.co_filename, frame.line, module, registry)
    return call.constant(None)


def action(text: str, category: type[Warning], module: str, line: int) -> str:
    """What the filters say of a warning: "default", "ignore", "error", ..."""
    filters: Any = warnings.filters
    for kind, pattern, wanted, where, number in filters:
        fits = pattern is None or pattern.match(text)
        here = where is None or where.match(module)
        if fits and here and issubclass(category, wanted) and number in (0, line):
            return str(kind)
    return str(getattr(sys.modules["warnings"], "defaultaction", "default"))
