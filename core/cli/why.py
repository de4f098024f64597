"""`armature why NAME` or `FILE:LINE`: the verdict, its reason and origin, what it overruled, and how to change it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from armature.cli.scripts import modules_of_the_folder
from armature.cli.terminal import console, print_data
from armature.rules.provenance import Why, why
from armature.rules.why_line import LineAnswer, as_place, why_line

INDENT = 12


def render_answer(out: Console, answer: Why) -> None:
    """Print one answer."""
    out.print(Text.assemble((answer.name, "bold"), f"  ({answer.kind})"), soft_wrap=True)
    for caption, text in answer.rows():
        out.print(Text.assemble((f"  {caption:{INDENT}}", "cyan"), text), soft_wrap=True)


def render_why(out: Console, name: str) -> None:
    """Print why the object of this name is traced as it is. Raises UnknownName."""
    render_answer(out, why(name))


def render_line(out: Console, answer: LineAnswer) -> None:
    """Print the verdicts on a line of a file."""
    out.print(Text.assemble((answer.place, "bold"), f"  {answer.text}"), soft_wrap=True)
    for one in answer.answers:
        render_answer(out, one)
    for text in answer.unresolved:
        out.print(f"{text}  (what this is depends on the run: armature explain)", markup=False, soft_wrap=True)


def show_why(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE:LINE", help="torch.nn.functional.gelu, torch.Tensor#add, model.py:41")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="print it as data")] = False,
) -> None:
    """Tell why a function is traced as it is: in the graph, inlined or skipped, by which rule of which plugin.

    With a file and a line: the same for the function around the line, and for its calls.
    """
    place = as_place(name)
    with modules_of_the_folder():
        answer = why(name) if place is None else why_line(*place)
    if as_json:
        print_data(answer.as_data())
    elif isinstance(answer, Why):
        render_answer(console(), answer)
    else:
        render_line(console(), answer)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("why")(show_why)
