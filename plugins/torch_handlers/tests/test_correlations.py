"""`torch.cov` and `torch.corrcoef` in a graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from armature.api import public as api

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "cov": torch.cov,
    "corrected": lambda x: torch.cov(x, correction=0) + x.cov(correction=2),
    "no weights": lambda x: torch.cov(x, fweights=None, aweights=None),
    "corrcoef": lambda x: torch.corrcoef(x),
    "methods": lambda x: x.cov() + x.corrcoef(),
}


def given(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(10, sizes, dtype=dtype, generator=generator)
    return torch.randn(*sizes, dtype=dtype, generator=generator)


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64])
def test_like_eager(program: str, dtype: torch.dtype, backend: str) -> None:
    api.reset()
    function = PROGRAMS[program]
    compiled = api.compile(function, backend=backend, fullgraph=True)
    for sizes in ((3, 5), (4, 6), (2, 7), (1, 5), (6,)):
        x = given(*sizes, dtype=dtype)
        expected, found = function(x), compiled(x)
        assert found.dtype is expected.dtype and found.stride() == expected.stride()
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients(program: str) -> None:
    mine, theirs = (given(3, 5).requires_grad_() for _ in range(2))
    api.compile(PROGRAMS[program], fullgraph=True)(mine).pow(3).sum().backward()
    PROGRAMS[program](theirs).pow(3).sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("function", [
    lambda x: torch.cov(x, aweights=torch.ones(x.shape[-1])),
    lambda x: torch.cov(x, fweights=torch.ones(x.shape[-1], dtype=torch.int64)),
    lambda x: torch.cov(x, correction=9),
    lambda x: torch.corrcoef(x[:, :1]),
    lambda x: torch.cov(x[None]),
    lambda x: torch.cov(x > 0),
])  # fmt: skip
def test_weights_errors_and_warnings(function: Callable[[Tensor], Any]) -> None:
    def outcome(call: Callable[[Tensor], Any]) -> Any:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                result: Any = call(given(3, 5)).nan_to_num().tolist()
            except RuntimeError as error:
                result = str(error)
        return result, ["degrees of freedom" in str(one.message) for one in warned].count(True)

    assert outcome(api.compile(function, backend="eager")) == outcome(function)
