"""Python's own functions and types: the effect of a call of each on values.

Each handler is complete: a call with other arguments breaks the graph, and Python reports the error. They have the
lowest priority, so that other plugins may handle a function more precisely.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from armature.plugin_api import Handler, collect
from armature_builtin_rules.functions import (
    attributes,
    class_checks,
    classes,
    containers,
    descriptors,
    dict_views,
    dicts,
    enums,
    exception_methods,
    exceptions,
    imports,
    iterators,
    numbers,
    sequences,
    sets,
    sorting,
    text,
)

ASKED_LAST = -1
MODULES = (
    attributes, class_checks, classes, containers, descriptors, dict_views, dicts, enums, exception_methods, exceptions,
    imports, iterators, numbers, sequences, sets, sorting, text,
)  # fmt: skip


def handlers() -> Iterable[Handler]:
    """The handlers of all modules."""
    return [attrs.evolve(row, priority=ASKED_LAST, complete=True) for row in collect(*MODULES)]
