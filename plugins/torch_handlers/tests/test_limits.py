"""The ranges of numpy's dtypes are constants of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature

np = pytest.importorskip("numpy")
HELD = np.iinfo(np.int16)


def clamped(x: Tensor) -> Any:
    whole = np.iinfo(np.int32)
    return x.clamp(max=float(whole.max), min=float(np.finfo(np.float32).min)) + np.finfo("float32").eps, whole.bits


def filled(x: Tensor) -> Any:
    return x.masked_fill(x > 0, np.finfo(x.numpy().dtype).min), np.iinfo(np.int64).max


def held_by_the_program(x: Tensor) -> Any:
    return x + HELD.max, str(HELD.dtype), np.finfo(np.float64).tiny


@pytest.mark.parametrize("program", [clamped, filled, held_by_the_program])
def test_in_one_graph(program: Callable[[Tensor], Any]) -> None:
    x = torch.linspace(-2, 2, 5)
    found, expected = armature.compile(program, fullgraph=True)(x), program(x)
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0)
    assert found[1:] == expected[1:]


def test_an_error_is_numpys() -> None:
    def program(x: Tensor) -> Any:
        try:
            return x + float(np.iinfo(np.float32).max)
        except ValueError as error:
            return x * 2, str(error)

    x = torch.ones(2)
    assert armature.compile(program, fullgraph=True)(x)[1] == program(x)[1]
