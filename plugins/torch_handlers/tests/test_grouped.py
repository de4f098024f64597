"""Tensors by device and dtype, as norms of gradients are computed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype

import armature
from armature.pipeline.session import session

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float32, torch.float16, torch.bfloat16)


def parameters() -> list[nn.Parameter]:
    """Of several dtypes, with gradients; one without."""
    torch.manual_seed(0)
    made = [nn.Parameter(torch.randn(place + 2).to(dtype)) for place, dtype in enumerate(DTYPES)]
    for parameter in made[:-1]:
        parameter.grad = torch.randn_like(parameter)
    return made


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("norm_type", [2.0, float("inf")])
@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_norms_are_clipped(foreach: bool | None, norm_type: float, backend: str) -> None:
    armature.reset()

    def clipped(params: list[nn.Parameter]) -> Tensor:
        return nn.utils.clip_grad_norm_(params, 0.5, norm_type, foreach=foreach)

    quick = armature.compile(clipped, backend=backend, fullgraph=True)
    exact = {"rtol": 0, "atol": 0} if backend == "eager" else {}
    for _ in range(2):
        ours, theirs = parameters(), parameters()
        torch.testing.assert_close(quick(ours), clipped(theirs), **exact)
        for mine, other in zip(ours[:-1], theirs[:-1]):
            torch.testing.assert_close(mine.grad, other.grad, **exact)
        assert ours[-1].grad is None
    assert len(session().compilations) == 1


def test_values_are_clipped() -> None:
    armature.reset()
    quick = armature.compile(nn.utils.clip_grad_value_, backend="eager", fullgraph=True)
    ours, theirs = parameters(), parameters()
    quick(ours, 0.25)
    nn.utils.clip_grad_value_(theirs, 0.25)
    torch.testing.assert_close([p.grad for p in ours[:-1]], [p.grad for p in theirs[:-1]], rtol=0, atol=0)


@pytest.mark.parametrize("with_indices", [False, True])
def test_groups_are_those_of_torch(with_indices: bool) -> None:
    """Their order too, and that other lists have nothing in places, or nothing at all."""
    armature.reset()

    def groups(x: Tensor, y: Tensor) -> Any:
        made = _group_tensors_by_device_and_dtype([[x, y, x], [None, y, None], []], with_indices)
        return list(made.items())

    x, y = torch.ones(3), torch.ones(2, dtype=torch.float64)
    ours, theirs = armature.compile(groups, backend="eager", fullgraph=True)(x, y), groups(x, y)
    assert [key for key, _ in ours] == [key for key, _ in theirs]
    for (_, (mine, places)), (_, (other, known)) in zip(ours, theirs):
        assert places == known
        assert [[id(item) for item in row] for row in mine] == [[id(item) for item in row] for row in other]
