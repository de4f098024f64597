"""`armature code SCRIPT --stage NAME`: the result of a stage for a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax

import armature
from armature import config
from armature.cli.run import PASS_ON, Arguments, OfProgram, Script
from armature.cli.scripts import run_script
from armature.cli.terminal import console, fail
from armature.errors import ArmatureError
from armature.graph.show import show as show_aten
from armature.lower.show import show as show_loops
from armature.pipeline.session import Compilation, Session, session
from armature.run.data import CompiledGraph
from armature.schedule.show import show as show_plan


class Stage(StrEnum):
    """The stages that can be shown."""

    FX = "fx"
    ATEN = "aten"
    LOOPS = "loops"
    PLAN = "plan"
    KERNELS = "kernels"
    WRAPPER = "wrapper"


PER_GRAPH: Mapping[Stage, Callable[[CompiledGraph], str]] = {
    Stage.ATEN: lambda graph: show_aten(graph.aten),
    Stage.LOOPS: lambda graph: show_loops(graph.loops),
    Stage.PLAN: lambda graph: show_plan(graph.plan),
    Stage.KERNELS: lambda graph: "\n".join(source.text for source in graph.program.sources),
    Stage.WRAPPER: lambda graph: graph.program.wrapper,
}


def texts(record: Compilation, stage: Stage) -> Iterator[tuple[str, str]]:
    """Name and text of the stage's result for one compilation, one per graph."""
    if stage is Stage.FX:
        if record.module is not None:
            yield record.function, record.captured
        return
    for graph in record.graphs:
        yield graph.name, PER_GRAPH[stage](graph)


def language(stage: Stage, record: Compilation) -> str:
    """The language, for highlighting."""
    sources = [source for graph in record.graphs for source in graph.program.sources]
    return sources[0].language if stage is Stage.KERNELS and sources else "python"


def print_stage(screen: Console, found: Session, stage: Stage) -> None:
    """Print the stage's result for all compilations."""
    shown = 0
    for record in found.compilations:
        for name, text in texts(record, stage):
            screen.rule(f"{stage.value} of {name}    {record.where}")
            screen.print(Syntax(text, language(stage, record), background_color="default"))
            shown += 1
    if not shown:
        screen.print(f"Nothing was compiled to {stage.value}. [bold]armature explain[/bold] tells why.")


def print_passes(screen: Console, found: Session) -> None:
    """Print the input and output of each pass that has changed something, and name the others."""
    for record in found.compilations:
        for step in record.passes:
            title = f"{step.stage}: {step.name} of {step.plugin}"
            if step.before == step.after:
                screen.print(f"{title} left {record.function} as it was", markup=False)
                continue
            for moment, text in (("before", step.before), ("after", step.after)):
                screen.rule(f"{moment} {title}    {record.where}")
                screen.print(Syntax(text, "python", background_color="default"))


def code(
    script: Script,
    arguments: Arguments = None,
    stage: Annotated[Stage, typer.Option(help="which stage to print")] = Stage.KERNELS,
    passes: Annotated[bool, typer.Option("--passes", help="print the input and output of each pass instead")] = False,
) -> None:
    """Run a program and print the result of a stage, with the lines it comes from."""
    try:
        with config.patch(keep_passes=passes or config.current().keep_passes):
            status = run_script(script, arguments or [], armature.compile)
    except ArmatureError as error:
        fail(error)
    if passes:
        print_passes(console(), session())
    else:
        print_stage(console(), session(), stage)
    raise typer.Exit(status)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("code", cls=OfProgram, context_settings=PASS_ON)(code)
