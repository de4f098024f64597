"""`python -m benchmarks.bandwidth`: memory-bound programs on a GPU, against a copy of the same bytes.

Each is measured in eager mode, under torch.compile and under armature, alternately, by the device's clock. `bytes` of a
case are the minimum that has to be read and written.
"""

from __future__ import annotations

import json
import statistics
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import attrs
import torch
import torch.nn.functional as F
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

import armature
from armature.pipeline.session import session
from benchmarks.gpu import INCUMBENT, OURS, compiled_by

ROWS, WIDTH, WORDS = 16384, 4096, 32000
BF16, F32 = torch.bfloat16, torch.float32


@attrs.frozen(eq=False)
class Program:
    """A function, its arguments, and the bytes that it has to move."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    bytes: int


def matrix(dtype: torch.dtype = BF16, rows: int = ROWS, width: int = WIDTH) -> Tensor:
    """Random numbers on the device."""
    return torch.randn(rows, width, device="cuda", dtype=dtype)


def pointwise(fn: Callable[..., Any], *args: Tensor, results: int = 1) -> Program:
    """A program that reads its arguments once, and writes results as large as the first one."""
    moved = sum(a.nbytes for a in args) + results * args[0].nbytes
    return Program(fn, args, moved)


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    """As models write it, with float32 inside."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of (batch, heads, positions, width)."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def dropout_add_norm(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The end of a transformer's block in training."""
    return F.layer_norm(F.dropout(x, 0.1) + y, (x.shape[-1],), w, b)


def batch_norm_relu(x: Tensor, mean: Tensor, var: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """In inference."""
    return F.relu(F.batch_norm(x, mean, var, w, b))


def norm_backward(gradient: Tensor, x: Tensor, mean: Tensor, scale: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """The gradients of a layer norm's input, weight and bias."""
    sizes, wanted = [x.shape[-1]], [True, True, True]
    found: tuple[Tensor, ...] = torch.ops.aten.native_layer_norm_backward(gradient, x, sizes, mean, scale, w, w, wanted)
    return found


def softmax_backward(gradient: Tensor, result: Tensor) -> Tensor:
    """The gradient of a softmax's input."""
    return torch._softmax_backward_data(gradient, result, -1, result.dtype)


def embedding_backward(gradient: Tensor, places: Tensor) -> Tensor:
    """The gradient of a table of words."""
    return torch.ops.aten.embedding_dense_backward(gradient, places, WORDS, -1, False)


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    """Of logits in bfloat16."""
    return F.cross_entropy(x.float(), target)


def cross_entropy_step(x: Tensor, target: Tensor) -> Tensor:
    """The loss and its gradient."""
    return torch.autograd.grad(cross_entropy(x, target), x)[0]


def programs() -> Mapping[str, Callable[[], Program]]:
    """The programs, made one at a time, because together they would not fit."""

    def heads() -> Program:
        x = torch.randn(16, 16, 2048, 128, device="cuda", dtype=BF16)
        angle = torch.rand(2048, 128, device="cuda", dtype=BF16)
        return Program(rope, (x, angle, angle), 2 * x.nbytes)

    def normed(rows: int, width: int) -> Program:
        gradient, x = matrix(rows=rows, width=width), matrix(rows=rows, width=width)
        mean, scale = torch.zeros(2, rows, 1, device="cuda")
        return pointwise(norm_backward, gradient, x, mean, scale + 1, vector[:width])

    def words(step: bool) -> Program:
        x = matrix(rows=8192, width=WORDS).requires_grad_(step)
        target = torch.randint(0, WORDS, (8192,), device="cuda")
        return Program(cross_entropy_step if step else cross_entropy, (x, target), x.nbytes * (3 if step else 1))

    def pictures(layout: torch.memory_format) -> Program:
        x = torch.randn(64, 128, 112, 112, device="cuda", dtype=BF16).to(memory_format=layout)
        numbers = [torch.rand(128, device="cuda", dtype=BF16) + 0.5 for _ in range(4)]
        return Program(batch_norm_relu, (x, *numbers), 2 * x.nbytes)

    def table() -> Program:
        gradient = matrix(width=1024)
        places = torch.randint(0, WORDS, (ROWS,), device="cuda")
        return Program(embedding_backward, (gradient, places), gradient.nbytes + WORDS * 1024 * 2)

    vector = torch.rand(WIDTH, device="cuda", dtype=BF16)
    return {
        "x * 2 + 1": lambda: pointwise(lambda x: x * 2 + 1, matrix(F32)),
        "gelu": lambda: pointwise(F.gelu, matrix()),
        "gelu, tanh": lambda: pointwise(lambda x: F.gelu(x, approximate="tanh"), matrix()),
        "silu(x) * y": lambda: pointwise(lambda x, y: F.silu(x) * y, matrix(), matrix()),
        "softmax": lambda: pointwise(lambda x: x.softmax(-1), matrix()),
        "softmax, float32": lambda: pointwise(lambda x: x.softmax(-1), matrix(F32)),
        "layer norm": lambda: pointwise(lambda x, w: F.layer_norm(x, (WIDTH,), w, w), matrix(), vector),
        "RMS norm": lambda: pointwise(rms_norm, matrix(), vector),
        "dropout, add, norm": lambda: pointwise(dropout_add_norm, matrix(), matrix(), vector, vector),
        "layer norm, backward": lambda: normed(ROWS, WIDTH),
        "layer norm of 1024, backward": lambda: normed(4 * ROWS, WIDTH // 4),
        "softmax, backward": lambda: pointwise(softmax_backward, matrix(), matrix()),
        "rotary embedding": heads,
        "cross-entropy": lambda: words(step=False),
        "cross-entropy and gradient": lambda: words(step=True),
        "batch norm, relu": lambda: pictures(torch.contiguous_format),
        "batch norm, relu, channels last": lambda: pictures(torch.channels_last),
        "transpose": lambda: pointwise(lambda x: x.t().contiguous(), matrix()),
        "x + x.t()": lambda: pointwise(lambda x: x + x.t(), matrix(F32, WIDTH, WIDTH)),
        "cumulative sum": lambda: pointwise(lambda x: x.cumsum(-1), matrix(F32)),
        "cumulative sum, 8 rows": lambda: pointwise(lambda x: x.cumsum(-1), matrix(F32, 8, 1 << 22)),
        "cumulative sum, 8 columns": lambda: pointwise(lambda x: x.cumsum(0), matrix(F32, 1 << 22, 8)),
        "places in a mask": lambda: pointwise(lambda x: x.cumsum(0), matrix(F32, 1, 1 << 25)[0] > 0, results=8),
        "sum of rows": lambda: pointwise(lambda x: x.sum(1), matrix(F32), results=0),
        "sum of columns": lambda: pointwise(lambda x: x.sum(0), matrix(F32), results=0),
        "embedding, backward": table,
    }


def device_ms(calls: Mapping[str, Callable[[], Any]], rounds: int = 30) -> dict[str, float]:
    """Median milliseconds on the device, measured alternately. A pair's first launch hides the host's time."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    ballast = torch.empty(1 << 26, device="cuda")
    for _ in range(rounds):
        for name, call in calls.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(4):
                ballast.zero_()  # keeps the device busy meanwhile, and evicts earlier results from its cache
            start.record()
            call()
            end.record()
            end.synchronize()
            found[name].append(start.elapsed_time(end))
    return {name: statistics.median(values) for name, values in found.items()}


def measure(name: str, make: Callable[[], Program], incumbent: bool) -> dict[str, Any]:
    """A row: each compiler's share of a copy's bandwidth."""
    armature.reset()
    torch.compiler.reset()
    torch.manual_seed(0)
    program = make()
    half = torch.empty(program.bytes // 2, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(half)
    calls: dict[str, Callable[[], Any]] = {"copy": lambda: other.copy_(half)}
    for compiler in ("eager", OURS, *([INCUMBENT] if incumbent else [])):
        fn = compiled_by(compiler, program.fn)
        calls[compiler] = lambda fn=fn: fn(*program.args)  # type: ignore[misc]
        for _ in range(2):
            calls[compiler]()
    totals = session().totals()
    times = device_ms(calls)
    row: dict[str, Any] = {"program": name, "MiB": program.bytes / 2**20, "kernels": totals.kernels}
    row |= {"extern": totals.extern, **{f"{k} ms": ms for k, ms in times.items()}}
    return row | {f"{k} of a copy": times["copy"] / ms for k, ms in times.items() if k != "copy"}


Only = Annotated[str, typer.Option(help="comma-separated parts of names")]
Incumbent = Annotated[bool, typer.Option(help="measure torch.compile too")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="write the rows there")]


def need_gpu() -> None:
    """Errors: BadParameter where there is no CUDA device."""
    if not torch.cuda.is_available():
        raise typer.BadParameter("this needs a CUDA device, and torch sees none")


def main(
    only: Only = "",
    incumbent: Incumbent = True,
    json_file: JsonFile = None,
) -> None:
    """Measure programs that are bound by memory on a GPU."""
    need_gpu()
    named = {name: make for name, make in programs().items() if any(part in name for part in only.split(","))}
    calls = [({"program": name}, partial(measure, name, make, incumbent)) for name, make in named.items()]
    Console().print(table_of(rows_of(calls, json_file)))


def rows_of(
    calls: Iterable[tuple[dict[str, Any], Callable[[], dict[str, Any]]]], json_file: Path | None
) -> list[dict[str, Any]]:
    """A row for each call, or what names it and its error. They are printed and written as they come."""
    rows: list[dict[str, Any]] = []
    for name, call in calls:
        try:
            rows.append(call())
        except Exception as error:
            traceback.print_exc()
            rows.append({**name, "failed": f"{type(error).__name__}: {error}"[:300]})
        print({k: round(v, 3) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
        if json_file is not None:
            report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
            json_file.write_text(json.dumps(report, indent=1) + "\n")
    return rows


def table_of(rows: list[dict[str, Any]]) -> Table:
    """Shares of a copy's bandwidth."""
    table = Table(title="Of the bandwidth of a copy")
    for column in ("program", "eager", INCUMBENT, OURS, "kernels", "calls"):
        table.add_column(column, justify="left" if column == "program" else "right")
    for row in rows:
        if "failed" in row:
            table.add_row(row["program"], row["failed"])
            continue
        cells = [row.get(f"{k} of a copy") for k in ("eager", INCUMBENT, OURS)]
        counts = (str(row["kernels"]), str(row["extern"]))
        table.add_row(row["program"], *("" if c is None else f"{c:.2f}" for c in cells), *counts)
    return table


if __name__ == "__main__":
    typer.run(main)
