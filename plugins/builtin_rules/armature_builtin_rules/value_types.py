"""Python objects of types written in C that stand for another object."""

from __future__ import annotations

import functools
from typing import Any

from armature.plugin_api import Value, ValueType
from armature_builtin_rules import buffers, caches, deques, randomness, regex, thread_locals, weak
from armature_builtin_rules.polyfills.operator import OBJECTS


def operator_object(stand_in: Any) -> Any:
    """How an object that operator's classes made is traced: as the function that stands in for it."""

    def build(obj: Any, source: Any, tracer: Any) -> Value:
        kind, args = obj.__reduce__()[:2]
        keywords = {}
        if isinstance(kind, functools.partial):  # of a methodcaller with keyword arguments
            kind, args, keywords = kind.func, (*kind.args, *args), kind.keywords
        tracer.guards.same(source, obj)
        given = [tracer.as_value(arg) for arg in args]
        named = {name: tracer.as_value(value) for name, value in keywords.items()}
        made: Value = tracer.inline_python(stand_in, given, named)
        made.source = source
        return made

    return build


VALUE_TYPES = (
    ValueType(type(functools.lru_cache(len)), caches.of_program),
    *(ValueType(kind, operator_object(stand_in)) for kind, stand_in in OBJECTS),
    *buffers.VALUE_TYPES,
    *deques.VALUE_TYPES,
    *weak.VALUE_TYPES,
    *randomness.VALUE_TYPES,
    *regex.VALUE_TYPES,
    *thread_locals.VALUE_TYPES,
)
