"""The three ways to run a program that are compared, and generated graphs that show how compile time grows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

COMPILERS = ("eager", "torch.compile", "armature")


def compile_with(compiler: str, fn: Any) -> Any:
    """`fn` under the compiler; its imports count as its own time, hence the late import."""
    if compiler == "eager":
        return fn
    if compiler == "torch.compile":
        return torch.compile(fn)
    import armature  # noqa: PLC0415

    return armature.compile(fn)


def chain(x: torch.Tensor, steps: int) -> torch.Tensor:
    """A chain of `steps` operators in which each third uses its input twice."""
    for i in range(steps):
        if i % 3 == 0:
            x = x + 1
        elif i % 3 == 1:
            x = torch.sin(x)
        else:
            x = x * x
    return x


def doubling(x: torch.Tensor, y: torch.Tensor, steps: int) -> torch.Tensor:
    """Each step reads the last two values twice: as one expression it would double with every step."""
    values = [x, y]
    for _ in range(steps):
        c = values[-1] + values[-2]
        d = values[-1] * values[-2]
        values += [c, d]
    return values[-1]


def scaling_case(graph: str, steps: int) -> Callable[[Any], Callable[[], object]]:
    """Returns `bind(compile)`: a thunk that runs the graph once, forward and backward for the chain."""
    if graph == "chain":
        x = torch.rand(64, requires_grad=True)

        def bind_chain(compiled: Any) -> Callable[[], object]:
            return lambda: compiled(x, steps).sum().backward()

        return bind_chain
    a, b = torch.rand(64) * 0.1, torch.rand(64) * 0.1

    def bind_doubling(compiled: Any) -> Callable[[], object]:
        return lambda: compiled(a, b, steps)

    return bind_doubling


SCALING_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {"chain": chain, "doubling": doubling}
