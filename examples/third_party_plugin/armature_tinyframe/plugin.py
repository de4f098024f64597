"""The hooks of the plugin, and nothing else: the rows are in the other modules."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from armature.plugin_api import (
    BreakType,
    Handler,
    Pass,
    Polyfill,
    Rule,
    ValueType,
    collect,
    hookimpl,
)
from armature_tinyframe import break_types, commands, handlers, passes, polyfills, rules, values

ARMATURE_API_VERSION = (1, 0)


@hookimpl
def armature_rules() -> Iterable[Rule]:
    """`finite` is one node of the graph; functions on files are skipped."""
    return rules.RULES


@hookimpl
def armature_handlers() -> Iterable[Handler]:
    """Options are constants; reading a file breaks the graph by name."""
    return collect(handlers)


@hookimpl
def armature_value_types() -> Iterable[ValueType]:
    """A frame is traced column by column."""
    return values.VALUE_TYPES


@hookimpl
def armature_polyfills() -> Iterable[Polyfill]:
    """Polyfills for the C functions."""
    return polyfills.POLYFILLS


@hookimpl
def armature_break_types() -> Iterable[BreakType]:
    """The name of a graph break at a file."""
    return break_types.BREAK_TYPES


@hookimpl
def armature_passes() -> Iterable[Pass]:
    """Merge neighbouring calls of `finite`."""
    return passes.PASSES


@hookimpl
def armature_cli(app: typer.Typer) -> None:
    """Add the command `armature tinyframe`."""
    app.command("tinyframe")(commands.show)
