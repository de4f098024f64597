"""`python -m benchmarks.written_attention`: attention that a program writes out, on a GPU.

In eager mode, under torch.compile, and under armature with the pass `attention` and without it, alternately, by the
device's clock; with backward too. MiB: at the peak of forward and backward, beyond what is held before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import torch
import torch.nn.functional as F
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

import armature
from armature.pipeline.session import session
from benchmarks.bandwidth import Incumbent, JsonFile, Only, device_ms, need_gpu, rows_of
from benchmarks.gpu import INCUMBENT, OURS, compiled_by, peak_of

LOOPS = "loops"
Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def nanogpt(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.shape[-1]))
    seen = torch.ones(q.shape[-2], k.shape[-2], device=q.device).tril()
    return F.softmax(scores.masked_fill(seen == 0, -math.inf), dim=-1) @ v


def minigpt(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    """The mask is a buffer, of which nothing is known."""
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.shape[-1]))
    return F.softmax(scores.masked_fill(hidden, -math.inf), dim=-1) @ v


def hugging_face(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    """`eager_attention_forward`, with a mask made of one of truth values."""
    mask = torch.where(hidden, torch.finfo(q.dtype).min, torch.zeros((), dtype=q.dtype, device=q.device))
    weights = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5 + mask[:, :, :, : k.shape[-2]]
    weights = F.dropout(F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype), p=0.0, training=False)
    return torch.matmul(weights, v)


def timm(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    return (q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1)).softmax(dim=-1) @ v


def einsums(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    scores = torch.einsum("b h i d, b h j d -> b h i j", q * q.shape[-1] ** -0.5, k)
    return torch.einsum("b h i j, b h j d -> b h i d", scores.softmax(-1), v)


@attrs.frozen
class Case:
    """A way to write attention, and what it is given."""

    attend: Attend
    batches: int
    heads: int
    rows: int
    width: int = 64
    dtype: torch.dtype = torch.bfloat16
    tf32: bool = False

    @property
    def name(self) -> str:
        """As it is printed."""
        dtype = "tf32" if self.tf32 else str(self.dtype).removeprefix("torch.")
        return f"{self.attend.__name__} {dtype} {self.batches}x{self.heads}x{self.rows}x{self.width}"


FORMS = (nanogpt, minigpt, hugging_face, timm, einsums)
CASES = (
    *(Case(form, 8, 12, 1024) for form in FORMS),
    Case(timm, 32, 12, 197),
    Case(minigpt, 4, 12, 1000),
    Case(nanogpt, 2, 16, 4096, 128),
    Case(hugging_face, 8, 12, 1024, dtype=torch.float16),
    *(Case(timm, 8, 12, 1024, dtype=torch.float32, tf32=tf32) for tf32 in (False, True)),
    *(Case(minigpt, 8, 12, 1024, dtype=torch.float32, tf32=tf32) for tf32 in (False, True)),
    Case(timm, 4, 12, 256, dtype=torch.float32),
    *(Case(form, 1, 4, rows) for form in (timm, minigpt) for rows in (128, 256, 512)),
    Case(timm, 64, 8, 32),
)


def compiled(compiler: str, fn: Any) -> Any:
    """The function under a compiler."""
    if compiler == LOOPS:
        return armature.compile(fn, options={"disabled_passes": frozenset({"attention"})})
    return compiled_by(compiler, fn)


def fused() -> int:
    """How many calls of the operator and its gradient the last graphs have."""
    graphs = [g.aten.module.graph for g in session().compilations[-1].graphs]
    return sum("scaled_dot_product" in str(n.target) for graph in graphs for n in graph.nodes)


def measure(case: Case, incumbent: bool) -> dict[str, Any]:
    """A row: milliseconds of forward, and with backward, and MiB of the latter, for each compiler."""
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    armature.reset()
    torch.compiler.reset()
    torch.manual_seed(0)
    inner, place = case.heads * case.width, {"device": "cuda", "dtype": case.dtype}
    x, weight = (
        torch.randn(case.batches, case.rows, inner, **place),
        torch.randn(3 * inner, inner, **place) / inner**0.5,
    )
    hidden = torch.ones(1, 1, case.rows, case.rows, dtype=torch.bool, device="cuda").triu(1)

    def program(x: Tensor, weight: Tensor, hidden: Tensor) -> Tensor:
        parts = F.linear(x, weight).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (case.heads, case.width)).transpose(1, 2) for part in parts)
        return case.attend(q, k, v, hidden).transpose(1, 2).flatten(2)

    gradient, learned = torch.randn_like(x), weight.clone().requires_grad_()

    def train(run: Any) -> None:
        run(x, learned, hidden).backward(gradient)
        learned.grad = None

    row: dict[str, Any] = {"program": case.name}
    forward: dict[str, Callable[[], Any]] = {}
    both: dict[str, Callable[[], Any]] = {}
    for compiler in ("eager", *([INCUMBENT] if incumbent else []), LOOPS, OURS):
        run = compiled(compiler, program)
        forward[compiler], both[compiler] = partial(run, x, weight, hidden), partial(train, run)
        forward[compiler]()
        both[compiler]()
        row[f"{compiler} MiB"] = peak_of(both[compiler])
    row["fused"] = fused()
    for kind, calls in (("forward", forward), ("train", both)):
        row |= {f"{compiler} {kind} ms": ms for compiler, ms in device_ms(calls).items()}
    return row


def table_of(rows: list[dict[str, Any]]) -> Table:
    """Milliseconds and MiB."""
    names = ("eager", INCUMBENT, LOOPS, OURS)
    table = Table("program", title="Attention written out: milliseconds forward, with backward, and MiB")
    for kind in ("forward ms", "train ms", "MiB"):
        for name in names:
            table.add_column(f"{name} {kind}", justify="right")
    for row in rows:
        cells = [row.get(f"{name} {kind}") for kind in ("forward ms", "train ms", "MiB") for name in names]
        table.add_row(row["program"], *("" if cell is None else f"{cell:.3g}" for cell in cells))
    return table


def main(
    only: Only = "",
    incumbent: Incumbent = True,
    json_file: JsonFile = None,
) -> None:
    """Measure attention that a program writes out, on a GPU."""
    need_gpu()
    cases = [case for case in CASES if any(part in case.name for part in only.split(","))]
    calls = [({"program": case.name}, partial(measure, case, incumbent)) for case in cases]
    Console().print(table_of(rows_of(calls, json_file)))


if __name__ == "__main__":
    typer.run(main)
