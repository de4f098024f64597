"""`python -m benchmarks.measured_products`: linear layers in the default mode and in mode max-autotune, on a CPU.

`relu(x @ w.t() + b)` of m rows, k inputs and n outputs. Both are compiled and run alternately; a time is the median of
many calls. The last column is what mode max-autotune has chosen.
"""

from __future__ import annotations

from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import armature
from armature.pipeline.session import session
from benchmarks.narrow_products import microseconds

SHAPES = (
    (1, 256, 256),
    (1, 1024, 1024),
    (2, 64, 64),
    (4, 256, 256),
    (8, 512, 512),
    (16, 16, 16),
    (16, 64, 64),
    (32, 128, 10),
    (64, 64, 64),
    (100, 500, 10),
    (128, 256, 256),
    (256, 512, 512),
    (512, 1024, 1024),
)


def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A linear layer and its activation."""
    return torch.relu(torch.nn.functional.linear(x, w, b))


def eager(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The same, never compiled."""
    return torch.relu(torch.nn.functional.linear(x, w, b))


def chosen() -> str:
    """What was taken for the last product."""
    choices = [choice.chosen for source in session().kernel_sources() for choice in source.choices]
    return choices[-1] if choices else ""


@torch.no_grad()
def main() -> None:
    """Measure and print."""
    headings = ("m", "k", "n", "eager us", "default us", "max-autotune us", "of default", "chosen")
    table = Table(*headings, title=f"Linear layers, {torch.get_num_threads()} threads")
    for m, k, n in SHAPES:
        armature.reset()
        inputs = torch.randn(m, k), torch.randn(n, k), torch.randn(n)
        runs = [armature.compile(layer, mode=mode, dynamic=False) for mode in ("default", "max-autotune")]
        for run in runs:
            torch.testing.assert_close(run(*inputs), eager(*inputs), rtol=1e-4, atol=1e-3)
        calls = [partial(eager, *inputs), *(partial(run, *inputs) for run in runs)]
        times = microseconds(calls, 200)
        row = [*map(str, (m, k, n)), *(f"{time:.1f}" for time in times), f"{times[2] / times[1]:.2f}", chosen()]
        table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
