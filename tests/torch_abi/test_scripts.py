"""Contract: what TorchScript tells of a function's operators, and of what it writes to."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from armature.torch_abi.fake import FakeWorld
from armature.torch_abi.scripts import DTYPES, call_with_constants, sequence_of, written_by


@torch.jit.script
def plain(x: Tensor, value: float) -> tuple[Tensor, Tensor]:
    return torch.cat([x, x / value]), x.sum(dim=0)


@torch.jit.script
def looping(x: Tensor, times: int) -> Tensor:
    for _ in range(times):
        if times > 1:
            x.mul_(2)
    return x


@torch.jit.script
def around(x: Tensor) -> Tensor:
    return looping(x, 2)


@torch.jit.script
def with_code(x: Tensor) -> Tensor:
    return x.to(torch.float64)


def of_python(x):
    return x.mul_(2)


of_python.__annotations__ = {"x": Tensor, "return": Tensor}  # torch evaluates no annotations that are text
of_python = torch.jit.ignore(of_python)


@torch.jit.script
def calling_python(x: Tensor) -> Tensor:
    return of_python(x)


@torch.jit.script
def with_layout(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


@torch.jit.script
def with_numbers(x: Tensor, n: int) -> Tensor:
    return torch.sqrt(torch.tensor(x.size(-1) * n // 2, dtype=torch.float) / (-n + x.dim()))


def test_a_plain_sequence() -> None:
    assert all(map(sequence_of, (plain, with_code, with_numbers)))
    assert not any(map(sequence_of, (looping, around, with_layout, calling_python)))


@pytest.mark.parametrize("dtype", DTYPES.values())
def test_the_numbers_of_dtypes(dtype: torch.dtype) -> None:
    traced = torch.jit.trace(lambda x: x.to(dtype), torch.ones(3))
    (made,) = [node for node in traced.graph.nodes() if node.kind() == "aten::to"]
    code = next(one.toIValue() for one in made.inputs() if isinstance(one.toIValue(), int))
    assert DTYPES[code] == dtype


def test_writes() -> None:
    assert written_by(plain) == written_by(with_code) == frozenset()
    assert written_by(looping) is written_by(around) is written_by(calling_python) is None


def test_a_call_with_fakes() -> None:
    held, world = torch.ones(3), FakeWorld()
    traced, fake = torch.jit.trace(lambda x: x + held, torch.ones(3)), world.of(torch.ones(3))
    with world.mode:
        assert call_with_constants(traced, fake).shape == (3,)
