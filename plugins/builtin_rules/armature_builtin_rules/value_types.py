"""The value types for objects of C types."""

from __future__ import annotations

import functools

from armature.plugin_api import ValueType
from armature_builtin_rules import (
    buffers,
    caches,
    context_variables,
    deques,
    dict_kinds,
    enum_values,
    getters,
    iterators,
    partials,
    python_modules,
    randomness,
    regex,
    thread_locals,
    warning_filters,
    weak,
)
from armature_builtin_rules.functions import dict_views, sets

VALUE_TYPES = (
    ValueType(type(functools.lru_cache(len)), caches.of_program),
    *enum_values.VALUE_TYPES,
    *getters.VALUE_TYPES,
    *iterators.VALUE_TYPES,
    *buffers.VALUE_TYPES,
    *context_variables.VALUE_TYPES,
    *deques.VALUE_TYPES,
    *dict_kinds.VALUE_TYPES,
    *dict_views.VALUE_TYPES,
    *partials.VALUE_TYPES,
    *python_modules.VALUE_TYPES,
    *sets.VALUE_TYPES,
    *weak.VALUE_TYPES,
    *randomness.VALUE_TYPES,
    *regex.VALUE_TYPES,
    *thread_locals.VALUE_TYPES,
    *warning_filters.VALUE_TYPES,
)
