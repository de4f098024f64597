"""json while tracing: results for known data are known."""

from __future__ import annotations

import json
from typing import Any

from armature.plugin_api import Call, NotConstant, Tracing, Value, handles

SCALARS = (str, int, float, bool, type(None))
# Options that run no code of the program.
OPTIONS = frozenset({"skipkeys", "ensure_ascii", "check_circular", "allow_nan", "indent", "separators", "sort_keys"})


def known(tracer: Tracing, value: Value, inside: tuple[Value, ...] = ()) -> Any:
    """The current data, of builtin types. Raises NotConstant."""
    kind = value.python_type()
    if kind in SCALARS:
        return value.as_constant()
    if value in inside or kind not in (list, tuple, dict):
        raise NotConstant(value)
    if kind is not dict:
        return kind([known(tracer, item, (*inside, value)) for item in tracer.unpack(value)])
    pairs = [tracer.unpack(pair) for pair in tracer.unpack(value.call_method(tracer, "items", (), {}))]
    return {known(tracer, key): known(tracer, item, (*inside, value)) for key, item in pairs}


@handles(json.dumps)
def dumps(call: Call, obj: Value, **options: Value) -> Value | None:
    """The text of known data. Errors, and objects serialised by the program's code, are traced."""
    if not options.keys() <= OPTIONS:
        return None
    try:
        data = known(call.tracing, obj)
        named: dict[str, Any] = {name: known(call.tracing, value) for name, value in options.items()}
        return call.constant(json.dumps(data, **named))
    except (NotConstant, ValueError, TypeError, RecursionError):
        return None


@handles(json.loads)
def loads(call: Call, text: Value) -> Value | None:
    """The data in a known text, newly made."""
    if text.python_type() not in (str, bytes):
        return None
    try:
        return call.new_value(json.loads(text.as_constant()))
    except (NotConstant, ValueError, RecursionError):
        return None
