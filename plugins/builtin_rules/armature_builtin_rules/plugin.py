"""The plugin's hook implementations, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from armature.plugin_api import (
    BreakType,
    Function,
    Handler,
    Polyfill,
    RuleTable,
    Signature,
    Subject,
    ValueType,
    Verdict,
    collect,
    hookimpl,
)
from armature_builtin_rules import (
    buffers,
    builtin_functions,
    chosen_classes,
    deques,
    derived,
    getters,
    handlers,
    load,
    partials,
    randomness,
    reflection,
    regex,
    signatures,
    value_types,
    warning_filters,
    weak,
)
from armature_builtin_rules.breaks import FAMILIES
from armature_builtin_rules.polyfills import bisect, collections, copy, functools, inspect, itertools, operator, system


@hookimpl
def armature_rules() -> Iterable[RuleTable]:
    """The tables under data/."""
    return load.rules()


@hookimpl
def armature_decide(subject: Subject) -> Verdict | None:
    """The computed sets: operators, tensor methods, builtins."""
    return derived.decide(subject)


@hookimpl
def armature_polyfills() -> Iterable[Polyfill]:
    """Python polyfills for C functions of the standard library."""
    for module in (bisect, collections, copy, functools, inspect, itertools, operator, system):
        yield from (Polyfill(original, stand_in) for original, stand_in in module.STAND_INS)


@hookimpl
def armature_handlers() -> Iterable[Handler]:
    """Handlers for Python's builtin functions, and for those of the standard library with side effects."""
    yield from builtin_functions.handlers()
    yield from collect(buffers, getters, handlers, reflection, regex, deques, partials, weak, randomness)
    yield from collect(warning_filters)


@hookimpl
def armature_signatures() -> Iterable[Signature]:
    """Signatures of C functions in the standard library that have none, and the modules whose calls are checked."""
    return signatures.ROWS


@hookimpl
def armature_functions() -> Iterable[Function]:
    """Methods that choose the class of their result."""
    return chosen_classes.ROWS


@hookimpl
def armature_value_types() -> Iterable[ValueType]:
    """Value types for builtin and standard-library types."""
    return value_types.VALUE_TYPES


@hookimpl
def armature_break_types() -> Iterable[BreakType]:
    """The catalogue of graph breaks that the interpreter raises."""
    return [row for family in FAMILIES for row in family.ROWS]
