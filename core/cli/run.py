"""`armature run SCRIPT`: runs an unmodified program with its torch.compile calls redirected to armature."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperCommand

import armature
from armature.cli.progress import Progress
from armature.cli.scripts import run_script
from armature.cli.terminal import console, fail
from armature.errors import ArmatureError
from armature.pipeline.session import Session, session
from armature.reports.collect import counted

Script = Annotated[Path, typer.Argument(help="a Python program", show_default=False)]
Arguments = Annotated[list[str] | None, typer.Argument(help="its arguments", show_default=False)]
PASS_ON = {"ignore_unknown_options": True}  # unknown options after the program belong to it
ALL_AFTER = PASS_ON | {"allow_interspersed_args": False}  # all options after the program belong to it


class OfProgram(TyperCommand):
    """A command that takes a program and its arguments. An unknown option before the program is an error: passed on to
    the program, a misspelt one would be ignored."""

    # Any: the classes of click, or of the copy that newer versions of typer contain.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as usual, after checking the options before the program. Errors: click's UsageError."""
        known: list[Any] = list(self.get_params(ctx))
        takes = {name: not option.is_flag for option in known for name in option_names(option)}
        words = iter(args)
        for word in words:
            name, equals, _ = word.partition("=")
            if not name.startswith("-") or name in ("-", "--"):
                break
            if name not in takes:
                near = get_close_matches(name, takes, n=1)
                ctx.fail(f"there is no option {name}{f'; did you mean {near[0]}?' if near else ''}")
            if takes[name] and not equals:
                next(words, None)
        return super().parse_args(ctx, args)


def option_names(parameter: Any) -> list[str]:
    """The spellings of an option; none of an argument."""
    names: list[str] = [*parameter.opts, *parameter.secondary_opts]
    return [name for name in names if name.startswith("-")]


def summary(found: Session) -> Table:
    """A table of what was compiled: a row per frame, totals in the title."""
    totals = found.totals()
    named = {"graph": totals.graphs, "break": totals.breaks, "kernel": totals.kernels}
    title = ", ".join(counted(number, noun) for noun, number in named.items())
    table = Table(title=f"armature: {title}, {totals.seconds:.1f} s")
    for name in ("function", "where", "outcome"):
        table.add_column(name)
    for name in ("operators", "kernels", "fused", "ATen calls", "seconds"):
        table.add_column(name, justify="right")
    for record in found.compilations:
        programs = [graph.program for graph in record.graphs]
        counts = (
            record.operators,
            sum(program.kernel_count for program in programs),
            sum(program.fused_count for program in programs),
            sum(program.extern_count for program in programs),
        )
        outcome = f"{record.outcome.value}: {record.reason}" if record.reason else record.outcome.value
        place = f"{Path(record.file).name}:{record.line}"
        table.add_row(record.function, place, outcome, *map(str, counts), f"{record.seconds:.2f}")
    return table


def run(script: Script, arguments: Arguments = None) -> None:
    """Run a program with its torch.compile calls redirected to armature, and print what was compiled."""
    status = 1
    try:
        with Progress(session()):
            status = run_script(script, arguments or [], armature.compile)
    except ArmatureError as error:
        fail(error)
    finally:
        if session().compilations:
            console(stderr=True).print(summary(session()))
    raise typer.Exit(status)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run", cls=OfProgram, context_settings=ALL_AFTER)(run)
