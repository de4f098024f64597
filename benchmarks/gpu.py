"""`python -m benchmarks.gpu`: eager, torch.compile and armature on full-size models on a GPU, in one process.

Calls alternate, so that clocks and temperature are the same for all; figures are medians. An error is the largest
difference from eager mode, in parts of its largest value. Prints a table, and with
--json writes JSON after each row. With another --tuning, launches are recorded: then the report has memory for the
first row only, because recordings take over what those of earlier rows left.
"""

from __future__ import annotations

import copy
import datetime
import json
import math
import statistics
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import nn

import armature
from armature.pipeline.session import session
from benchmarks.models.case import first_tensor, loss_of
from benchmarks.models.full_size import MODELS, optimizer_step

Call = Callable[[], Any]
Row = dict[str, Any]
OURS, INCUMBENT = "armature", "torch.compile"


def times_of(calls: Mapping[str, Call], seconds: float, batch: int) -> dict[str, float]:
    """Median milliseconds of each call, with `batch` calls queued before waiting, measured alternately."""
    for call in calls.values():
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    found: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(found.values()))) < 5:
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(batch):
                call()
            torch.cuda.synchronize()
            found[name].append((time.perf_counter() - start) / batch * 1e3)
    return {name: statistics.median(values) for name, values in found.items()}


def first_call(call: Call) -> float:
    """Seconds until the first call has finished."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def peak_of(call: Call) -> float:
    """MiB that one call needs at its peak, beyond what was allocated before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def reserved() -> float:
    """MiB that the allocator holds while nothing runs: tensors, and what recordings keep for themselves."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() / 2**20


def reserved_by(call: Call, before: float) -> float:
    """MiB that the allocator holds at the peak of a call, beyond `before`: with the memory of recordings, which
    `peak_of` does not see."""
    for _ in range(5):
        call()
    reserved()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_reserved() / 2**20 - before


def bound(model: Any, run: Any, args: tuple[Any, ...], mode: str) -> Call:
    """One call of `run`: forward, or forward and backward, with gradients cleared."""

    def infer() -> Any:
        with torch.no_grad():
            return run(*args)

    def train() -> Any:
        loss = loss_of(run(*args))
        loss.backward()
        model.zero_grad(set_to_none=True)
        return loss.detach()

    return train if mode == "train" else infer


def load_convolutions(model: Any, args: tuple[Any, ...], mode: str) -> None:
    """Run a copy of a model with convolutions in channels-last layout, which both compilers may choose.

    cuDNN loads or makes the kernels of a convolution when it first runs in a layout, which takes seconds for some
    models, and the compiler whose turn is first would pay for both.
    """
    if any(isinstance(module, nn.Conv2d) for module in model.modules()):
        layout = {"memory_format": torch.channels_last}
        copied = copy.deepcopy(model).to(**layout)
        bound(copied, copied, tuple(a.to(**layout) if a.ndim == 4 else a for a in args), mode)()
        torch.cuda.synchronize()


def compiled_calls(make: Callable[[str], Call], incumbent: bool, row: Row, tuning: str) -> dict[str, Call]:
    """A compiled call per compiler; the seconds of first calls and the memory are added to the row.

    Eager mode comes first, so that loading libraries counts for none of the compilers.
    """
    calls: dict[str, Call] = {}
    for name in ("eager", OURS, *([INCUMBENT] if incumbent else [])):
        before = reserved()
        calls[name] = make(name)
        row[f"{name} first s"] = first_call(calls[name])
        row[f"{name} MiB"] = peak_of(calls[name]) if tuning == "default" else reserved_by(calls[name], before)
    return calls


def compiled_by(name: str, fn: Any, tuning: str = "default") -> Any:
    """The function or model under a compiler. tuning: the `mode` of both compilers."""
    ways = {
        "eager": lambda: fn,
        OURS: lambda: armature.compile(fn, mode=tuning),
        INCUMBENT: lambda: torch.compile(fn, mode=tuning),
    }
    return ways[name]()


def chosen() -> dict[str, int]:
    """How many kernels of this compiler were chosen among several, by what was chosen: loops, library, or template."""
    found = [choice.chosen for source in session().kernel_sources() for choice in source.choices]
    kinds = ["template" if label[0].isdigit() else label.partition(" ")[0].rstrip(",") for label in found]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def measure_model(name: str, mode: str, dtype: torch.dtype, seconds: float, incumbent: bool, tuning: str) -> Row:
    """A row for one model and mode."""
    case = MODELS[name]()
    model = case.model.cuda().to(dtype).train(mode == "train")
    args = tuple(a.cuda().to(dtype) if a.is_floating_point() else a.cuda() for a in case.args)
    row: Row = {"model": name, "mode": mode}
    load_convolutions(model, args, mode)
    models = {k: model if k == "eager" else copy.deepcopy(model) for k in ("eager", OURS, INCUMBENT)}
    calls = compiled_calls(
        lambda k: bound(models[k], compiled_by(k, models[k], tuning), args, mode), incumbent, row, tuning
    )
    totals = session().totals()
    row |= {"graphs": totals.graphs, "kernels": totals.kernels, "extern": totals.extern, "chosen": chosen()}
    if mode == "infer":
        expected, found = (first_tensor_of(calls[k]()) for k in ("eager", OURS))
        largest = expected.float().abs().max().item()
        row["error"] = (expected.float() - found.float()).abs().max().item() / largest if largest else 0.0
    return row | {f"{k} ms": ms for k, ms in times_of(calls, seconds, 5).items()}


def first_tensor_of(output: Any) -> torch.Tensor:
    """The first tensor of an output, which may be one itself."""
    return output if isinstance(output, torch.Tensor) else first_tensor(output)


def measure_optimizer(name: str, seconds: float, incumbent: bool, tuning: str) -> Row:
    """A row for the step of an optimizer over 36 tensors."""
    row: Row = {"model": f"{name}.step, 36 tensors", "mode": "step"}

    def make(compiler: str) -> Call:
        optimizer, _ = optimizer_step(name)
        return compiled_by(compiler, lambda: optimizer.step(), tuning)  # type: ignore[no-any-return]

    calls = compiled_calls(make, incumbent, row, tuning)
    totals = session().totals()
    row |= {"graphs": totals.graphs, "kernels": totals.kernels, "extern": totals.extern}
    return row | {f"{k} ms": ms for k, ms in times_of(calls, seconds, 20).items()}


def fresh(measure: Callable[..., Row], *args: Any) -> Row:
    """A measurement after clearing the state of earlier ones; a failure becomes a row."""
    armature.reset()
    torch.compiler.reset()
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    try:
        return measure(*args)
    except Exception as error:
        traceback.print_exc()
        return {"model": str(args[0]), "mode": str(args[1]), "failed": f"{type(error).__name__}: {error}"[:300]}


def is_usable() -> bool:
    """Whether the device still runs anything in this process: an illegal access of a kernel ends that."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def mean_ratio(rows: list[Row], other: str) -> float | None:
    """Geometric mean of armature's time over another's."""
    ratios = [row[f"{OURS} ms"] / row[f"{other} ms"] for row in rows if f"{other} ms" in row]
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


def table_of(rows: list[Row]) -> Table:
    """The rows, times in milliseconds, and peak memory."""
    table = Table(title="Milliseconds a call, and MiB at its peak")
    for column in ("model", "mode", "eager", INCUMBENT, OURS, f"of {INCUMBENT}", "of eager", "MiB", f"{INCUMBENT} MiB"):
        table.add_column(column, justify="left" if column in ("model", "mode") else "right")
    for row in rows:
        if "failed" in row:
            table.add_row(row["model"], row["mode"], row["failed"])
            continue
        cells = [row.get(f"{name} ms") for name in ("eager", INCUMBENT, OURS)]
        cells += [cells[2] / cells[1] if cells[1] else None, cells[2] / cells[0]]
        cells += [row.get(f"{OURS} MiB"), row.get(f"{INCUMBENT} MiB")]
        table.add_row(row["model"], row["mode"], *("" if c is None else f"{c:.3g}" for c in cells))
    return table


def report(rows: list[Row], dtype: str, tuning: str) -> Row:
    """What the JSON file holds."""
    ratios = {other: mean_ratio(rows, other) for other in ("eager", INCUMBENT)}
    return {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "date": str(datetime.date.today()),
        "dtype": dtype, "tuning": tuning, "means": {k: v for k, v in ratios.items() if v is not None}, "rows": rows,
    }  # fmt: skip


def main(
    models: Annotated[str, typer.Option(help="comma-separated")] = ",".join(MODELS),
    modes: Annotated[str, typer.Option(help="infer, train, step")] = "infer,train,step",
    dtype: Annotated[str, typer.Option(help="of models: bfloat16, float16 or float32")] = "bfloat16",
    seconds: Annotated[float, typer.Option(help="of measuring a row")] = 1.5,
    incumbent: Annotated[bool, typer.Option(help="measure torch.compile too")] = True,
    tuning: Annotated[str, typer.Option(help="mode of both compilers, as max-autotune")] = "default",
    json_file: Annotated[Path | None, typer.Option("--json", help="write the rows there")] = None,
) -> None:
    """Measure models of full size on a GPU."""
    if not torch.cuda.is_available():
        raise typer.BadParameter("this needs a CUDA device, and torch sees none")
    if unknown := set(models.split(",")) - set(MODELS):
        raise typer.BadParameter(f"no such models: {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    rows: list[Row] = []
    names = {mode: ("Adam", "SGD") if mode == "step" else models.split(",") for mode in modes.split(",")}
    wanted = [(mode, name) for mode, held in names.items() for name in held]
    for mode, name in wanted:
        if mode == "step":
            rows.append(fresh(measure_optimizer, name, seconds, incumbent, tuning))
        else:
            rows.append(fresh(measure_model, name, mode, getattr(torch, dtype), seconds, incumbent, tuning))
        if tuning != "default" and len(rows) > 1:
            rows[-1] = {k: v for k, v in rows[-1].items() if not k.endswith(" MiB")}
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
        if json_file is not None:
            json_file.write_text(json.dumps(report(rows, dtype, tuning), indent=1) + "\n")
        if not is_usable():
            break
    console = Console()
    console.print(table_of(rows))
    for other, ratio in report(rows, dtype, tuning)["means"].items():
        console.print(f"armature's time over that of {other}, geometric mean: {ratio:.3f}")
    if len(rows) < len(wanted):
        left = ", ".join(f"{name} ({mode})" for mode, name in wanted[len(rows) :])
        console.print(f"A kernel ended this process's use of the device. Not measured: {left}; give these to --models.")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
