"""`python -m benchmarks.norms`: training steps of norms alone, whose backward sums along rows and across them.

In eager mode, by torch.compile and by armature, alternately; a time is the median of many calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import armature
from benchmarks.narrow_products import microseconds

SIZES = ((16384, 128), (4096, 512), (2048, 1024), (512, 768))


class Biased(nn.Module):
    """A layer norm of a sum with a bias, whose gradient is a sum across rows of what layer norm's backward gives."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias, self.norm = nn.Parameter(torch.zeros(width)), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(x + self.bias)
        return out


def step(run: Callable[[Tensor], Tensor], leaves: list[Tensor], gradient: Tensor) -> tuple[Tensor, ...]:
    """Forward and backward."""
    return torch.autograd.grad(run(leaves[0]), leaves, gradient)


def main() -> None:
    """Measure and print."""
    table = Table("norm", "rows", "dtype", "eager us", "torch.compile us", "armature us", title="Training of norms")
    for kind in (nn.LayerNorm, nn.RMSNorm, Biased):
        for rows, width in SIZES:
            for dtype in (torch.float32, torch.bfloat16):
                torch.compiler.reset()  # all norms share code, which is compiled a few times at most
                armature.reset()
                module = kind(width).to(dtype)
                leaves = [torch.randn(rows, width, dtype=dtype, requires_grad=True), *module.parameters()]
                gradient = torch.randn(rows, width, dtype=dtype)
                ways = [module, torch.compile(module), armature.compile(module, fullgraph=True)]
                times = microseconds([partial(step, way, leaves, gradient) for way in ways], rounds=100)
                size, name = f"{rows} x {width}", str(dtype).removeprefix("torch.")
                table.add_row(kind.__name__, size, name, *(f"{one:.0f}" for one in times))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
