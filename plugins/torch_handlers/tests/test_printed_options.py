"""How tensors are printed (`torch.set_printoptions`): set in a frame, and in effect where it prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import armature

X = torch.linspace(-1, 1, 3)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    armature.reset()
    yield
    torch.set_printoptions(profile="default")


def left_set(x: Tensor) -> Tensor:
    torch.set_printoptions(precision=2, sci_mode=False)
    return x * 2


def asked(x: Tensor) -> Any:
    torch.set_printoptions(profile="short")
    x = x * torch._tensor_str.get_printoptions()["precision"]
    torch.set_printoptions(profile="full", linewidth=60)
    return x, torch._tensor_str.get_printoptions()


def printed(x: Tensor) -> Tensor:
    torch.set_printoptions(precision=1)
    x = x / 3
    print(x)
    torch.set_printoptions(precision=3)
    return x * 2


@pytest.mark.parametrize(("program", "breaks"), [(left_set, 0), (asked, 0), (printed, 1)])
def test_as_eager_mode(program: Callable[[Tensor], Any], breaks: int, capsys: pytest.CaptureFixture[str]) -> None:
    compiled, told = armature.compile(program, backend="eager"), []
    for fn in (program, compiled, compiled):
        torch.set_printoptions(profile="default")
        result = fn(X)
        told.append((str(result), capsys.readouterr().out, torch._tensor_str.get_printoptions()))
    assert told[1:] == told[:1] * 2
    assert armature.explain(program)(X).graph_break_count == breaks
