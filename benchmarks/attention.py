"""`python -m benchmarks.attention`: flexible attention on a GPU, beside torch.compile.

Forward, and forward with backward, alternately, by the device's clock: bfloat16, 16 heads of 4096 rows in 4 batches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import armature
from benchmarks.bandwidth import Incumbent, JsonFile, Only, device_ms, need_gpu, rows_of
from benchmarks.gpu import INCUMBENT, OURS, compiled_by, first_call, peak_of

BATCHES, HEADS, ROWS = 4, 16, 4096


def causal(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return m >= n


def window(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return (m >= n) & (m - n <= 512)


def capped(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return torch.tanh(score / 20) * 20


def programs() -> dict[str, dict[str, Any]]:
    """What `flex_attention` is given besides its tensors."""
    slopes = torch.exp2(-torch.arange(1, HEADS + 1, device="cuda") * 8.0 / HEADS)

    def alibi(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
        return score + slopes[h] * (n - m)

    below, near = (create_block_mask(mask, None, None, ROWS, ROWS, device="cuda") for mask in (causal, window))
    return {
        "no mask": {},
        "causal": {"block_mask": below},
        "window of 512": {"block_mask": near},
        "causal, alibi": {"block_mask": below, "score_mod": alibi},
        "causal, capped": {"block_mask": below, "score_mod": capped},
    }


def measure(name: str, options: dict[str, Any], width: int, key_heads: int, incumbent: bool) -> dict[str, Any]:
    """A row: milliseconds of forward, and with backward, and MiB at the peak of the latter, for each compiler."""
    armature.reset()
    torch.compiler.reset()
    torch.manual_seed(0)
    shapes = [(BATCHES, heads, ROWS, width) for heads in (HEADS, key_heads, key_heads)]
    learned = [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for shape in shapes]
    fixed = [one.detach() for one in learned]
    gradient = torch.randn_like(fixed[0])
    row: dict[str, Any] = {"program": name, "width": width, "key heads": key_heads}
    forward: dict[str, Callable[[], Any]] = {}
    both: dict[str, Callable[[], Any]] = {}
    for compiler in (OURS, *([INCUMBENT] if incumbent else [])):
        run = compiled_by(compiler, lambda q, k, v: flex_attention(q, k, v, enable_gqa=True, **options))

        def train(run: Any = run) -> None:
            run(*learned).backward(gradient)
            for one in learned:
                one.grad = None

        forward[compiler] = lambda run=run: run(*fixed)  # type: ignore[misc]
        both[compiler] = train
        row[f"{compiler} first s"] = first_call(train)
        row[f"{compiler} MiB"] = peak_of(train)
        forward[compiler]()
    for kind, calls in (("forward", forward), ("train", both)):
        row |= {f"{compiler} {kind} ms": ms for compiler, ms in device_ms(calls).items()}
    return row


def main(
    only: Only = "",
    incumbent: Incumbent = True,
    json_file: JsonFile = None,
) -> None:
    """Measure flexible attention on a GPU."""
    need_gpu()
    named = {name: held for name, held in programs().items() if any(part in name for part in only.split(","))}
    calls = [
        ({"program": name, "width": width}, partial(measure, name, options, width, key_heads, incumbent))
        for width, key_heads in ((64, HEADS), (128, HEADS // 4))
        for name, options in named.items()
    ]
    Console().print(table_of(rows_of(calls, json_file)))


def table_of(rows: list[dict[str, Any]]) -> Table:
    """Milliseconds, and the share of torch.compile's."""
    table = Table(title="Milliseconds of flexible attention")
    for column in ("program", "width", "forward", INCUMBENT, "of it", "train", INCUMBENT, "of it", "MiB", INCUMBENT):
        table.add_column(column, justify="left" if column == "program" else "right")
    for row in rows:
        if "failed" in row:
            table.add_row(row["program"], str(row["width"]), row["failed"])
            continue
        cells = [row["program"], str(row["width"])]
        for kind in ("forward", "train"):
            ours, theirs = row[f"{OURS} {kind} ms"], row.get(f"{INCUMBENT} {kind} ms")
            cells += [f"{ours:.2f}", *(("", "") if theirs is None else (f"{theirs:.2f}", f"{ours / theirs:.2f}"))]
        table.add_row(*cells, *(f"{row[f'{c} MiB']:.0f}" if f"{c} MiB" in row else "" for c in (OURS, INCUMBENT)))
    return table


if __name__ == "__main__":
    typer.run(main)
