"""Compile time grows with the number of operators, not with its square. Calls of the compiler's functions are counted
instead of seconds, which vary from run to run."""

from __future__ import annotations

import cProfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import pytest
import torch
from torch import Tensor

import armature
from armature.backend_api import KernelSource
from armature_cpu_cpp.backend import CpuBackend

OURS = (str(Path(armature.__file__).parent), "<attrs generated")


def pointwise(x: Tensor, steps: int) -> Tensor:
    for k in range(steps):
        x = (x + 1, x.sin(), x * x)[k % 3]
    return x


def products(x: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        x = x @ x
    return x


def norms(x: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        x = (x - x.mean(-1, keepdim=True)).softmax(0)
    return x


def calls_of(program: Callable[[Tensor, int], Tensor], steps: int, train: bool) -> Counter[tuple[str, str]]:
    """How often each function of ours is called while the program is compiled; a generator once for each item."""
    armature.reset()
    x = torch.rand(8, 8, requires_grad=train)
    profile = cProfile.Profile()
    profile.enable()
    try:
        result = armature.compile(program, fullgraph=True)(x, steps)
        if train:
            result.sum().backward()
    finally:
        profile.disable()
    calls: Counter[tuple[str, str]] = Counter()
    for one in profile.getstats():
        if isinstance(one.code, CodeType) and one.code.co_filename.startswith(OURS):
            calls[one.code.co_filename, one.code.co_qualname] += one.callcount
    return calls


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that do nothing: how long a C++ compiler takes is not counted."""

    def build(self: CpuBackend, source: KernelSource, ctx: object) -> dict[str, Callable[..., None]]:
        return dict.fromkeys(source.kernels, lambda *args: None)

    monkeypatch.setattr(CpuBackend, "build", build)


@pytest.mark.usefixtures("unbuilt")
@pytest.mark.parametrize(
    ("program", "steps", "train"),
    [(pointwise, 50, False), (products, 15, True), (norms, 8, True)],
    ids=["pointwise", "products", "norms"],
)
def test_calls_grow_with_the_number_of_operators(program: Callable[..., Tensor], steps: int, train: bool) -> None:
    calls_of(program, 5, train)  # what is only made once
    few, many = (calls_of(program, number, train) for number in (steps, 8 * steps))
    assert sum(many.values()) <= 10 * sum(few.values())
    # 64 times would be the square. Some functions have work only in long chains, which are cut into several kernels.
    more = {name: (few[name], number) for name, number in many.items() if number > 12 * few[name] + 1000}
    assert more == {}
