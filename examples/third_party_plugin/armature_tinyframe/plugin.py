"""The hooks of the plugin, and nothing else: the rows stand in the modules beside this one."""

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
    """`finite` is one node of the graph; files are left alone."""
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
    """Stand-ins for the C functions."""
    return polyfills.POLYFILLS


@hookimpl
def armature_break_types() -> Iterable[BreakType]:
    """What a break at a file is called."""
    return break_types.BREAK_TYPES


@hookimpl
def armature_passes() -> Iterable[Pass]:
    """Merges neighbouring calls of `finite`."""
    return passes.PASSES


@hookimpl
def armature_cli(app: typer.Typer) -> None:
    """`armature tinyframe`."""
    app.command("tinyframe")(commands.show)
