"""`armature why NAME`: the verdict on a callable, its reason, and who says so."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from armature.cli.terminal import console, print_data
from armature.provenance import MEANING, Why, place, why

INDENT = 12


def rows_of(answer: Why) -> list[tuple[str, str]]:
    """The answer as captions and texts."""
    rows = [
        ("decision", f"{answer.decision.value}: {MEANING[answer.decision]}"),
        ("because", answer.reason),
        ("says", place(answer.origin)),
    ]
    if answer.file:
        rows.append(("defined", answer.file))
    rows += [(speaker.kind, place(speaker.origin)) for speaker in answer.speakers]
    rows += [("overrules", f"{v.decision.value}: {v.reason} ({place(v.origin)})") for v in answer.overruled]
    return rows


def render_why(out: Console, name: str) -> None:
    """Print why the thing of this name is traced as it is. Raises UnknownName."""
    answer = why(name)
    out.print(Text(answer.name, style="bold"))
    for caption, text in rows_of(answer):
        out.print(Text.assemble((f"  {caption:{INDENT}}", "cyan"), text), soft_wrap=True)


def show_why(
    name: Annotated[str, typer.Argument(help="dotted name: torch.nn.functional.gelu, json.dumps, torch.Tensor#add")],
    as_json: Annotated[bool, typer.Option("--json", help="print it as data")] = False,
) -> None:
    """Say why a function is traced as it is: in the graph, inlined or skipped, by which rule of which plugin."""
    if as_json:
        print_data(why(name).as_data())
    else:
        render_why(console(), name)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("why")(show_why)
