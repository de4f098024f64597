from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan

import armature


def added(left: Any, right: Any) -> Any:
    return left + right


def state(left: Any, right: Any) -> Any:
    return left[0] * right[0], right[0] * left[1] + right[1]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("combine", "pair"), [(added, False), (state, True)])
def test_as_in_eager_mode(combine: Any, pair: bool, reverse: bool) -> None:
    def scan(a: torch.Tensor, b: torch.Tensor) -> Any:
        return associative_scan(combine, (a, b) if pair else a, 1, reverse=reverse, combine_mode="generic")

    a, b = torch.rand(3, 5, 2), torch.rand(3, 5, 2)
    torch.testing.assert_close(armature.compile(scan, backend="eager", fullgraph=True)(a, b), scan(a, b))
