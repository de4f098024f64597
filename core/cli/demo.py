"""`armature demo`: compiles the example models, and shows a table, a kernel and a verdict."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import itertools
import json
import math
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import attrs
import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.table import Table

import armature
from armature.cli.terminal import console as make_console
from armature.cli.why import render_why
from armature.codegen.data import KernelSource
from armature.errors import ArmatureError
from armature.pipeline.session import session
from armature.testing.differential import compare_runs, run_model

MODES = ("infer", "train")
KERNEL_LINES = 60


class ExamplesNotFound(ArmatureError):
    """The example models are neither installed nor next to the source."""

    code = "A250"
    text = "the example models are not here: looked for the package armature.example_models and for {folder}"
    hint = "Run from a source checkout, or reinstall torch-armature."


class UnknownExample(ArmatureError):
    """A name given to --models is not an example's."""

    code = "A251"
    text = "there is no example model called {name!r}"
    hint = "Choose from: {known}."


@attrs.frozen
class Row:
    """The demo's results for one model in one mode. Times in milliseconds, compile time in seconds."""

    model: str
    mode: str
    graphs: int
    breaks: int
    operators: int
    kernels: int
    fused: int
    extern: int
    error: float
    tolerance: float
    compile_s: float
    eager_ms: float
    armature_ms: float

    @property
    def ratio(self) -> float:
        """The speedup over eager."""
        return self.eager_ms / self.armature_ms


def load_examples() -> dict[str, Callable[[], Any]]:
    """The example models by name: from the installed package, or from the source tree that contains this package."""
    if importlib.util.find_spec("armature.example_models"):
        catalogue = importlib.import_module("armature.example_models.catalogue")
    else:
        folder = Path(__file__).resolve().parents[2] / "examples"
        if not (folder / "models" / "catalogue.py").exists():
            raise ExamplesNotFound(folder=folder)
        sys.path.insert(0, str(folder))
        try:
            catalogue = importlib.import_module("models.catalogue")
        finally:
            sys.path.remove(str(folder))
    examples: dict[str, Callable[[], Any]] = catalogue.EXAMPLES
    return examples


def call_of(example: Any, model: Callable[..., Any], mode: str) -> Callable[[], Any]:
    """One call of the model: under no_grad, or forward and backward."""

    def infer() -> Any:
        with torch.no_grad():
            return model(*example.inputs)

    def train() -> Any:
        example.model.zero_grad(set_to_none=True)
        example.loss(model(*example.inputs)).backward()

    return infer if mode == "infer" else train


def clock(call: Callable[[], Any], device: str) -> float:
    """Milliseconds of one call, including the device's queue."""
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def in_turns(eager: Callable[[], Any], compiled: Callable[[], Any], device: str, budget: float) -> tuple[float, float]:
    """Median milliseconds per call of both, measured alternately for about `budget` seconds."""
    for call in (eager, compiled):
        clock(call, device)
    once = min(clock(eager, device), clock(eager, device)) / 1e3
    rounds = max(5, min(400, int(budget / 2 / max(once, 1e-6))))
    times = [(clock(eager, device), clock(compiled, device)) for _ in range(rounds)]
    return statistics.median(t for t, _ in times), statistics.median(t for _, t in times)


def measure(make: Callable[[], Any], mode: str, device: str, budget: float) -> Row:
    """Compile one example, compare it with eager and time both."""
    armature.reset()
    torch.manual_seed(0)
    example = make()
    example.model.to(device).train(mode == "train")
    example.inputs = tuple(t.to(device) for t in example.inputs)
    reference = copy.deepcopy(example.model)
    loss = example.loss if mode == "train" else None
    compiled = armature.compile(example.model)
    with torch.set_grad_enabled(mode == "train"):
        eager_run = run_model(reference, reference, example.inputs, loss)
        if eager_run.error is not None:
            raise eager_run.error
        start = time.perf_counter()
        compiled_run = run_model(example.model, compiled, example.inputs, loss)
        seconds = time.perf_counter() - start
        error = compare_runs(eager_run, compiled_run)
    found = session().totals()
    eager_ms, armature_ms = in_turns(
        call_of(example, example.model, mode), call_of(example, compiled, mode), device, budget
    )
    return Row(
        model=example.name,
        mode=mode,
        graphs=found.graphs,
        breaks=found.breaks,
        operators=found.operators,
        kernels=found.kernels,
        fused=found.fused,
        extern=found.extern,
        error=error,
        tolerance=example.tolerance,
        compile_s=seconds,
        eager_ms=eager_ms,
        armature_ms=armature_ms,
    )


COUNTS: Mapping[str, Callable[[Row], str]] = {
    "graphs": lambda r: str(r.graphs),
    "breaks": lambda r: str(r.breaks),
    "ops": lambda r: str(r.operators),
    "kernels": lambda r: str(r.kernels),
    "fused": lambda r: str(r.fused),
    "ATen": lambda r: str(r.extern),
}
TIMES: Mapping[str, Callable[[Row], str]] = {
    "error": lambda r: f"{r.error:.1e}",
    "compile s": lambda r: f"{r.compile_s:.2f}",
    "eager ms": lambda r: f"{r.eager_ms:.2f}",
    "armature ms": lambda r: f"{r.armature_ms:.2f}",
    "ratio": lambda r: f"{r.ratio:.2f}",
}
ONE_TABLE = 132  # terminal width at which all figures fit in one table


def table_of(rows: list[Row], title: str, columns: Mapping[str, Callable[[Row], str]]) -> Table:
    """The rows as a table; red if a model differs from eager by more than its tolerance."""
    table = Table(title=title)
    for name in ("model", "mode"):
        table.add_column(name, no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for r in rows:
        style = None if r.error <= r.tolerance else "red"
        table.add_row(r.model, r.mode, *(show(r) for show in columns.values()), style=style)
    if "ratio" in columns:
        mean = math.exp(statistics.fmean(math.log(r.ratio) for r in rows))
        table.add_section()
        table.add_row("geometric mean", "", *[""] * (len(columns) - 1), f"{mean:.2f}", style="bold")
    return table


def show_tables(console: Console, rows: list[Row], device: str) -> None:
    """One table if it fits, else separate ones for counts and times."""
    title = f"armature on {device}"
    if console.width >= ONE_TABLE:
        console.print(table_of(rows, title, {**COUNTS, **TIMES}))
        return
    console.print(table_of(rows, f"{title}: what was compiled", COUNTS))
    console.print(table_of(rows, f"{title}: against eager", TIMES))


def chosen_examples(names: str) -> dict[str, Callable[[], Any]]:
    """The examples named, in the catalogue's order. Errors: UnknownExample."""
    examples = load_examples()
    wanted = [n for n in names.split(",") if n] or list(examples)
    for name in wanted:
        if name not in examples:
            raise UnknownExample(name=name, known=", ".join(examples))
    return {n: f for n, f in examples.items() if n in wanted}


def operators_over(block: str) -> int:
    """ATen operators named in the comment that a block of generated code starts with."""
    comment = itertools.takewhile(lambda line: line.startswith(("//", "#")), block.splitlines())
    return sum(line.count("aten.") for line in comment)


def sample_kernel(sources: Sequence[KernelSource]) -> tuple[str, str] | None:
    """The shortest kernel that fuses operators, with its language; None if there is none."""
    blocks = [(b.strip("\n"), s.language) for s in sources for b in re.split(r"\n\s*\n", s.text)]
    fused = [pair for pair in blocks if operators_over(pair[0]) > 1 and pair[0].count("\n") > 5]
    return min(fused, key=lambda pair: pair[0].count("\n"), default=None)


def show_one_kernel(console: Console, kernel: tuple[str, str] | None) -> None:
    """Print a generated kernel with its origins."""
    if kernel is None:
        console.print("No kernel fused operators: run [bold]armature doctor[/bold] to see what is missing.")
        return
    console.rule("One generated kernel")
    text, language = kernel
    console.print(Syntax("\n".join(text.splitlines()[:KERNEL_LINES]), language, word_wrap=True))


def check_device(device: str, console: Console) -> None:
    """Errors: exit status 2 if the device is not available."""
    if device == "cuda" and not torch.cuda.is_available():
        console.print(
            "No CUDA device here. Run [bold]armature demo[/bold] for the CPU, or see [bold]armature doctor[/bold]."
        )
        raise typer.Exit(2)


def demo(
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    models: Annotated[str, typer.Option(help="comma-separated names; all by default")] = "",
    modes: Annotated[str, typer.Option(help="infer, train or both")] = "infer,train",
    budget: Annotated[float, typer.Option(help="seconds of measuring a model and mode")] = 1.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the same as data")] = None,
) -> None:
    """Compile the example models, compare each with eager, and show what was generated."""
    console = make_console()
    check_device(device, console)
    try:
        examples = chosen_examples(models)
    except ArmatureError as error:
        console.print(str(error), markup=False)
        raise typer.Exit(2) from None
    todo = [(name, mode) for name in examples for mode in MODES if mode in modes.split(",")]
    rows: list[Row] = []
    sources: list[KernelSource] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("compiling", total=len(todo))
        for name, mode in todo:
            progress.update(task, description=f"{name} ({mode})")
            rows.append(measure(examples[name], mode, device, budget))
            sources += session().kernel_sources()
            progress.advance(task)
    show_tables(console, rows, device)
    show_one_kernel(console, sample_kernel(sources))
    console.rule("Why a function is traced as it is: armature why torch.nn.functional.gelu")
    render_why(console, "torch.nn.functional.gelu")
    console.rule("Where to go next")
    console.print(
        "armature run SCRIPT      your own program, its torch.compile calls going to armature\n"
        "armature code SCRIPT     every stage of what was compiled\n"
        "armature explain SCRIPT  graphs, guards, and why a graph broke\n"
        "armature plugins new X   a plugin of your own, with tests that pass\n"
        "docs/architecture.md     how it works; docs/plugins.md how to extend it"
    )
    if json_file:
        data = [attrs.asdict(r) | {"ratio": r.ratio} for r in rows]
        machine = {"device": device, "torch": str(torch.__version__), "cores": os.cpu_count()}
        json_file.write_text(json.dumps({"machine": machine, "rows": data}, indent=1) + "\n")
    if any(r.error > r.tolerance for r in rows):
        console.print("A model differs from eager by more than its tolerance.", style="red")
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)
