"""`python -m benchmarks.narrow_products`: products of matrices with a narrow side, by torch's library and as loops.

The results determine NARROW and NARROW_WORK of the pass "narrow-products". The loops are compiled, the library's call
is not, so some microseconds of theirs are the overhead of compiled code. Both run alternately; a time is the median of
many calls.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import armature

SHAPES = (
    (100, 500, 10),
    (100, 256, 10),
    (64, 84, 10),
    (32, 128, 10),
    (64, 512, 1),
    (1000, 64, 4),
    (32, 2048, 10),
    (16, 4096, 4),
    (256, 256, 16),
    (500, 500, 10),
)
Product = tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]


def products(m: int, k: int, n: int) -> dict[str, Product]:
    """The products of a linear layer with k inputs and n outputs over m rows: its result and both gradients.

    Each as the library's call, as loops, and its inputs.
    """
    x, w, b, g = torch.randn(m, k), torch.randn(n, k), torch.randn(n), torch.randn(m, n)
    return {
        "x @ w.t() + b": (
            lambda x, w, b: torch.addmm(b, x, w.t()),
            lambda x, w, b: (x[:, None] * w[None]).sum(-1) + b,
            (x, w, b),
        ),
        "g @ w": (torch.mm, lambda g, w: (g[:, :, None] * w[None]).sum(1), (g, w)),
        "g.t() @ x": (lambda g, x: g.t() @ x, lambda g, x: (g.t()[:, :, None] * x[None]).sum(1), (g, x)),
    }


def microseconds(calls: Sequence[Callable[[], object]], rounds: int = 400) -> list[float]:
    """Median microseconds of each, measured alternately."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, own in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            own.append(time.perf_counter() - start)
    return [statistics.median(own) * 1e6 for own in times]


@torch.no_grad()
def main() -> None:
    """Measure and print."""
    table = Table("m", "k", "n", "product", "library us", "loops us", "loops x", title="Products with a narrow side")
    for shape in SHAPES:
        for name, (library, loops, inputs) in products(*shape).items():
            armature.reset()
            compiled = armature.compile(loops, dynamic=False, fullgraph=True)
            torch.testing.assert_close(compiled(*inputs), library(*inputs), rtol=1e-4, atol=1e-4)
            calls = [partial(library, *inputs), partial(compiled, *inputs)]
            before, after = microseconds(calls)
            table.add_row(*map(str, shape), name, f"{before:.1f}", f"{after:.1f}", f"{before / after:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
