"""`armature breaks`: the catalogue of graph breaks, one type of them, all as a web site, or those of a program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperGroup

from armature.breaks.report import break_report
from armature.cli.explain import recorder
from armature.cli.run import PASS_ON, Arguments, OfProgram
from armature.cli.scripts import run_script
from armature.cli.terminal import console, fail, print_data
from armature.errors import ArmatureError
from armature.pipeline.session import session
from armature.plugins.plugin_manager import manager
from armature.reports import catalogue
from armature.reports.catalogue import Entry

PROGRAM = "of"  # the command that takes a program; its name may be omitted


class WithPrograms(TyperGroup):
    """`armature breaks PROGRAM` is `armature breaks of PROGRAM`."""

    # Any: the classes of click, or of the copy that newer versions of typer contain.
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command named by the first word; any other word is a program."""
        named = args and self.get_command(ctx, args[0]) is not None
        return super().resolve_command(ctx, args if named else [PROGRAM, *args])


def catalogue_entries() -> list[Entry]:
    """All break types of the plugins."""
    return catalogue.entries(manager().tables().registries.break_types.winners())


def table() -> Table:
    """The catalogue."""
    found = catalogue_entries()
    made = Table(title=f"{len(found)} kinds of graph break", show_lines=True)
    for name in ("id", "title", "what to do", "from"):
        made.add_column(name, no_wrap=name == "id")
    for entry in found:
        hints = "\n".join(hint for hint, _ in entry.advice)
        made.add_row(entry.type.id, entry.type.title, hints, entry.plugin)
    return made


def breaks(ctx: typer.Context) -> None:
    """The catalogue of graph breaks, one kind, a web site of all, or the breaks of a program."""
    if ctx.invoked_subcommand is None:
        console().print(table())


def of_program(
    script: Annotated[Path, typer.Argument(help="a Python program", show_default=False)], arguments: Arguments = None
) -> None:
    """Run a program and report its breaks; `of` can be left out."""
    screen = console()
    records = session().separate()
    try:
        status = run_script(script, arguments or [], recorder(records))
    except ArmatureError as error:
        fail(error)
    found = records.breaks()
    screen.print(*break_report(found), sep="\n")
    screen.print(f"{len(found)} graph breaks")
    raise typer.Exit(status)


def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="the id in reports (data-dependent-branch) or its code")],
    as_json: Annotated[bool, typer.Option("--json", help="print it as data")] = False,
) -> None:
    """Say what a kind of graph break means, why it is one, and what to do, with an example."""
    try:
        entry = catalogue.find(name, catalogue_entries())
    except ArmatureError as error:
        fail(error)
    if as_json:
        print_data(entry.as_data())
    else:
        console().print(*catalogue.lines(entry), sep="\n")


def site(folder: Annotated[Path, typer.Argument(metavar="DIR", help="where to write it")]) -> None:
    """Write the catalogue as a web site: a page for each kind and each plugin, with a search; it needs no server."""
    try:
        pages = catalogue.write_site(folder, catalogue_entries())
    except ArmatureError as error:
        fail(error)
    console().print(f"{len(pages)} pages, {pages[0]}", markup=False, soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(cls=WithPrograms)
    group.callback(invoke_without_command=True)(breaks)
    group.command(PROGRAM, cls=OfProgram, context_settings=PASS_ON)(of_program)
    group.command("show")(show)
    group.command("site")(site)
    app.add_typer(group, name="breaks")
