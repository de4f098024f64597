"""`armature explain SCRIPT`: graphs, guards and graph breaks of a program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from armature.api.explain import capturing, output_of
from armature.cli.run import PASS_ON, Arguments, Script
from armature.cli.scripts import run_script
from armature.cli.terminal import console, fail
from armature.errors import ArmatureError
from armature.pipeline.session import Session, session


def recorder(records: Session) -> Callable[..., Any]:
    """A stand-in for `armature.compile` that captures graphs into the records and compiles nothing."""

    def compile(fn: Any = None, *, dynamic: bool | None = None, **others: Any) -> Any:
        if fn is None:
            return lambda given: compile(given, dynamic=dynamic, **others)
        return capturing(fn, records, dynamic)

    return compile


def explain(
    script: Script,
    arguments: Arguments = None,
    html: Annotated[Path | None, typer.Option(help="also write a web page")] = None,
    guards: Annotated[bool, typer.Option(help="list the guards too")] = False,
) -> None:
    """Run a program and tell which graphs were captured, where they broke and why."""
    records = session().apart()
    try:
        status = run_script(script, arguments or [], recorder(records))
    except ArmatureError as error:
        fail(error)
    output = output_of(records)
    screen = console()
    screen.print(output)
    if guards:
        screen.print("Guards:", *output.guards, sep="\n  ", markup=False)
    if html:
        screen.print(f"Written to {output.to_html(html)}")
    raise typer.Exit(status)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain", context_settings=PASS_ON)(explain)
