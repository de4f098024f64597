"""Complex numbers of the program in graphs: signs of zeros, infinities and NaN are kept."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch

import armature
from armature.errors import ArmatureWarning


@pytest.mark.parametrize("back_end", [{"backend": "eager"}, {}])
@pytest.mark.parametrize(
    "number",
    [complex(1, -0.0), complex(-0.0, 2), complex(math.nan, 1), complex(1, math.inf), complex(-math.inf, math.nan)],
)
def test_constants_are_kept(number: complex, back_end: dict[str, Any]) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.full((2,), number), x * number, x + number, torch.stack([x, torch.full_like(x, number)])

    x = torch.tensor([1.0 + 2j, -0.5j])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ArmatureWarning)
        found = armature.compile(program, fullgraph=True, **back_end)(x)
    assert [repr(part) for part in found] == [repr(part) for part in program(x)]
