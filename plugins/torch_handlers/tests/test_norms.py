"""local_response_norm with numbers that vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import armature
from armature.pipeline.session import session

NORMS: tuple[Callable[[Tensor, float], Tensor], ...] = (
    lambda x, a: F.local_response_norm(x, 2, a),
    lambda x, b: F.local_response_norm(x, 2, 1e-2, b),
    lambda x, k: F.local_response_norm(x, size=3, alpha=0.1, k=k),
)


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("fn", NORMS)
def test_three_graphs_for_all_values(fn: Callable[..., Any], backend: str) -> None:
    armature.reset()
    compiled = armature.compile(fn, backend=backend, fullgraph=True)
    x = torch.linspace(-1, 1, 24).view(2, 3, 4)
    for value in (0.1, 0.2, 0.3, 0.4, 0.75, 1.5):
        torch.testing.assert_close(compiled(x, value), fn(x, value))
    assert len(session().compilations) == 3
