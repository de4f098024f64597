"""`armature repro SCRIPT` writes failing compilations as scripts; `armature minify` reduces such a graph."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import armature
from armature import config
from armature.cli.run import PASS_ON, Arguments, OfProgram, Script
from armature.cli.scripts import INTERRUPTED, found_script, run_script
from armature.cli.terminal import console, fail
from armature.errors import ArmatureError
from armature.pipeline.repro import ERROR, SCRIPT, forget, write_graph
from armature.pipeline.session import Outcome, session
from armature.reports.files import CannotWriteReport
from armature.reports.judges import Judges
from armature.reports.minify import minify
from armature.reports.recorder import shown


class Kind(StrEnum):
    """The failure that a graph is to show."""

    ERROR = "error"
    WRONG = "wrong"
    SLOW = "slow"


def repro(
    script: Script,
    arguments: Arguments = None,
    out: Annotated[Path, typer.Option(help="folder in which each failure gets its own folder")] = Path("repro"),
    kind: Annotated[Kind, typer.Option(help="what counts as failure; the last two try each graph again")] = Kind.ERROR,
) -> None:
    """Run a program; each graph that fails leaves a folder with a standalone script that reproduces the failure."""
    folder = out.absolute()
    try:
        found_script(script)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(CannotWriteReport(path=out, problem=error.strerror or error))
    except ArmatureError as error:
        fail(error)
    before = set(folder.iterdir())
    screen, status = console(), 0
    try:
        with config.patch(repro_dir=str(folder)):
            status = run_script(script, arguments or [], armature.compile)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except Exception as error:
        print(shown(error), file=sys.stderr)
        status = 1
    for record in session().compilations:
        if record.script_folder is not None:
            forget(record.script_folder, os.getpid())
    if kind is not Kind.ERROR:
        leave_faulty(folder, kind, screen)
    print_files(screen, sorted(set(folder.iterdir()) - before), kind)
    for failed in (record for record in session().compilations if record.outcome is Outcome.FAILED):
        text = f"No script can make the program's own backend. {failed.where} {failed.function}: {failed.reason}"
        screen.print(text, markup=False, soft_wrap=True)
    raise typer.Exit(status)


def leave_faulty(folder: Path, kind: Kind, screen: Console) -> None:
    """Try each compiled graph of the program by itself, and leave a folder for each that is at fault."""
    compiled = [record for record in session().compilations if record.outcome is Outcome.COMPILED and record.module]
    with screen.status("trying") as status, Judges() as judges:
        for number, record in enumerate(compiled, 1):
            status.update(f"trying graph {number} of {len(compiled)}")
            made = write_graph(folder, record, kind.value)
            said = judges.of_script(made / SCRIPT, record.backend, kind.value)
            if said:
                (made / ERROR).write_text(said, encoding="utf-8")
                screen.print(f"{record.where} {record.function}: {said}", markup=False, soft_wrap=True)
            else:
                forget(made, os.getpid())


NOTHING = {
    Kind.ERROR: "Nothing failed to compile.",
    Kind.WRONG: "All graphs give eager mode's values.",
    Kind.SLOW: "No graph is slow.",
}


def print_files(screen: Console, made: list[Path], kind: Kind) -> None:
    """Report what was written."""
    for path in made:
        screen.print(f"Written to {path / SCRIPT}", markup=False, soft_wrap=True)
    if made:
        option = "" if kind is Kind.ERROR else f" --kind {kind.value}"
        screen.print(f"`armature minify FOLDER{option}` makes the graph smaller.", markup=False)
    elif not any(record.outcome is Outcome.FAILED for record in session().compilations):
        screen.print(NOTHING[kind])


def smaller(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="of `armature repro`, or a script in it")],
    kind: Annotated[Kind, typer.Option(help="what the graph shows")] = Kind.ERROR,
) -> None:
    """Reduce a graph to the smallest one that still fails: with an error, with wrong values, or slowly."""
    screen = console()
    with screen.status("looking") as status, Judges() as judges:
        try:
            path, found, size = minify(
                folder.absolute(),
                kind.value,
                lambda tries, nodes: status.update(f"{tries} graphs, {nodes} operators"),
                judges.fault,
            )
        except ArmatureError as error:
            fail(error)
        except OSError as error:
            fail(CannotWriteReport(path=folder, problem=error.strerror or error))
    screen.print(f"{size} operators after {found.tries} graphs: {found.fault}", markup=False, soft_wrap=True)
    screen.print(f"Written to {path}", markup=False, soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("repro", cls=OfProgram, context_settings=PASS_ON)(repro)
    app.command("minify")(smaller)
