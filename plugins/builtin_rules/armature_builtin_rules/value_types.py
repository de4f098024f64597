"""Python objects of types written in C that stand for another object."""

from __future__ import annotations

import functools
from typing import Any

from armature.plugin_api import Value, ValueType


def cached_function(obj: Any, source: Any, tracer: Any) -> Value:
    """A function under functools.lru_cache: what it computes is traced, each time it is called."""
    inner: Value = tracer.wrap(obj.__wrapped__, tracer.attr_source(source, "__wrapped__"))
    return inner


VALUE_TYPES = (ValueType(type(functools.lru_cache(len)), cached_function),)
