"""`armature breaks`: the catalogue of graph breaks, or those of a program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from armature.breaks.report import break_report
from armature.cli.explain import recorder
from armature.cli.run import PASS_ON, Arguments
from armature.cli.scripts import run_script
from armature.cli.terminal import console, fail
from armature.errors import ArmatureError
from armature.pipeline.session import session
from armature.plugins.plugin_manager import manager


def catalogue() -> Table:
    """All break types that plugins give."""
    rows = sorted(manager().tables().registries.break_types.winners(), key=lambda row: row.value.id)
    table = Table(title=f"{len(rows)} kinds of graph break", show_lines=True)
    for name in ("id", "title", "what to do", "from"):
        table.add_column(name, no_wrap=name == "id")
    for row in rows:
        table.add_row(row.value.id, row.value.title, "\n".join(hint.text for hint in row.value.hints), row.plugin.name)
    return table


def breaks(
    script: Annotated[Path | None, typer.Argument(help="a Python program; none: the catalogue")] = None,
    arguments: Arguments = None,
) -> None:
    """Print the catalogue of graph breaks, or run a program and report its breaks."""
    screen = console()
    if script is None:
        screen.print(catalogue())
        return
    records = session().apart()
    try:
        status = run_script(script, arguments or [], recorder(records))
    except ArmatureError as error:
        fail(error)
    found = records.breaks()
    screen.print(*break_report(found), sep="\n")
    screen.print(f"{len(found)} graph breaks")
    raise typer.Exit(status)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("breaks", context_settings=PASS_ON)(breaks)
