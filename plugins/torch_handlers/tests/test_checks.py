"""Checks that all of a tensor is true."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import armature


def checked(x: Tensor) -> Tensor:
    torch._check_tensor_all(x > 0, lambda: "not positive")
    return x + 1


def checked_with(x: Tensor) -> Tensor:
    torch._check_tensor_all_with(ValueError, x > 0)
    return x + 1


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_all_of_a_tensor(backend: str) -> None:
    armature.reset()
    for fn, kind, text in ((checked, RuntimeError, "not positive"), (checked_with, ValueError, "Expected cond")):
        quick = armature.compile(fn, backend=backend, fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(quick(torch.ones(3)), torch.full((3,), 2.0))
            with pytest.raises(kind, match=text):
                quick(torch.tensor([1.0, -1.0, 1.0]))
