"""`armature explain SCRIPT`: the graphs of a program, its graph breaks, its recompilations, and why."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import armature
from armature.api.explain import capturing
from armature.cli.progress import Progress
from armature.cli.run import PASS_ON, Arguments, OfProgram, Script
from armature.cli.scripts import INTERRUPTED, found_script, run_script
from armature.cli.terminal import console, fail
from armature.errors import ArmatureError
from armature.pipeline.session import Session, session
from armature.reports import gate, terminal
from armature.reports.files import Reports, read
from armature.reports.github import lines
from armature.reports.record import Recording
from armature.reports.recorder import Recorder

FINDINGS_STATUS = 1  # exit status where --fail-on-... found something

Html = Annotated[Path | None, typer.Option(help="also write a self-contained web page")]
Json = Annotated[Path | None, typer.Option("--json", help="also write the record as data")]
Sarif = Annotated[Path | None, typer.Option(help="also write breaks and recompilations for code scanners")]
Trace = Annotated[Path | None, typer.Option(help="also write a trace of compilation and execution for Perfetto")]
Github = Annotated[bool, typer.Option(help="print annotations for GitHub Actions")]
Guards = Annotated[bool, typer.Option(help="list the guards too")]
Memory = Annotated[bool, typer.Option("--memory", help="draw memory over time too")]
FailOnBreak = Annotated[bool, typer.Option(help="exit with status 1 if a graph broke")]
FailOnRecompile = Annotated[bool, typer.Option(help="exit with status 1 if something was recompiled")]
Baseline = Annotated[Path | None, typer.Option(help="--json file of an earlier run: its findings are not failures")]
Capture = Annotated[bool, typer.Option("--capture-only", help="capture graphs, and run them operator by operator")]


def recorder(records: Session) -> Callable[..., Any]:
    """A replacement for `armature.compile` that captures graphs into the records and compiles nothing."""

    def compile(fn: Any = None, *, dynamic: bool | None = None, **others: Any) -> Any:
        if fn is None:
            return lambda given: compile(given, dynamic=dynamic, **others)
        return capturing(fn, records, dynamic)

    return compile


def recorded(script: Path, arguments: list[str], runs: bool, capture_only: bool) -> Recorder:
    """Run a program and record it. An error of the program is printed as Python prints it, and recorded."""
    records = session().separate() if capture_only else session()
    found = Recorder(str(script), tuple(arguments), runs, records)
    try:
        with found, Progress(records):
            status = run_script(script, arguments, recorder(records) if capture_only else armature.compile)
            if status:
                found.exited(status)
    except KeyboardInterrupt:
        found.status = INTERRUPTED
    except BaseException:
        print(found.error, file=sys.stderr)
    return found


def explain(
    script: Script,
    arguments: Arguments = None,
    html: Html = None,
    as_json: Json = None,
    sarif: Sarif = None,
    trace: Trace = None,
    github: Github = False,
    guards: Guards = False,
    memory: Memory = False,
    fail_on_break: FailOnBreak = False,
    fail_on_recompile: FailOnRecompile = False,
    baseline: Baseline = None,
    capture_only: Capture = False,
) -> None:
    """Run a program and report what was compiled, where graphs broke, what was compiled again, and why."""
    try:
        found_script(script)
        files = Reports(html=html, json=as_json, sarif=sarif, trace=trace)
        files.check()
        known = read(baseline) if baseline is not None else Recording()
    except ArmatureError as error:
        fail(error)
    found = recorded(script, arguments or [], trace is not None, capture_only)
    recording = found.recording()
    written: list[Path] = []
    problem = files.write(recording, written.append)  # first, because a closed pipe ends the printing
    screen = console()
    screen.print(*terminal.report(recording, guards, memory), sep="\n")
    if github:
        print(*lines(recording), sep="\n")
    for path in written:
        screen.print(f"Written to {path}", markup=False, soft_wrap=True)
    bad = gate.failing(recording, known, fail_on_break, fail_on_recompile)
    for finding in bad:
        screen.print(gate.line(finding), style="red", markup=False, soft_wrap=True)
    if problem is not None:
        fail(problem)
    raise typer.Exit(found.status or (FINDINGS_STATUS if bad else 0))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain", cls=OfProgram, context_settings=PASS_ON)(explain)
