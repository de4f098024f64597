"""`armature rules export`: the whole effective rule book, on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from enum import Enum
from typing import Annotated, TypeVar

import typer
from rich.progress import track

from armature import plugins
from armature.cli.plugins import lenient_tables
from armature.cli.scripts import modules_of_the_folder
from armature.cli.terminal import console
from armature.rules.export import export

T = TypeVar("T")
SLOW = 20_000  # rows from which on a progress bar is shown


class Format(Enum):
    """The output format of the rules."""

    JSON = "json"
    MD = "md"


def with_bar(rows: Iterable[T], total: int) -> Iterable[T]:
    """The rows, with a progress bar on standard error if there are many and it is a terminal."""
    if total < SLOW or not sys.stderr.isatty():
        return rows
    return track(rows, "rules", total=total, console=console(stderr=True), transient=True)


def export_rules(
    format: Annotated[Format, typer.Option(help="json for tools, md for people")] = Format.MD,
) -> None:
    """Print every rule: its target, decision, reason, plugin and location, and whether it applies."""
    with modules_of_the_folder():
        book = export(lenient_tables(plugins.manager()), with_bar)
    if format is Format.JSON:
        print(json.dumps(book.as_data(), indent=1))
    else:
        print("\n".join(book.as_markdown()))


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(help="Rules: what goes in the graph, is traced into, or is skipped.", no_args_is_help=True)
    group.callback()(lambda: None)
    group.command("export")(export_rules)
    app.add_typer(group, name="rules")
