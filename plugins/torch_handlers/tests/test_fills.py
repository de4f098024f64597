"""index_fill with a tensor that requires gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session

FILLS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "function": lambda x, i, v: torch.index_fill(x, 0, i, v) * 2,
    "method": lambda x, i, v: x.index_fill(-1, i, v).sin(),
    "in place": lambda x, i, v: (x * 1).index_fill_(1, i, v).exp(),
    "by keyword": lambda x, i, v: x.index_fill(dim=0, index=i, value=v).sin(),
    "of another dtype": lambda x, i, v: x.index_fill(0, i, v.half().detach()),
    "of another dtype, with a gradient": lambda x, i, v: x.double().index_fill(0, i, v).exp(),
    "strided": lambda x, i, v: x.t().index_fill(0, i, v).exp(),
    "sliced": lambda x, i, v: x[:, ::2].index_fill(0, i, v).exp(),
    "by an axis that is a size": lambda x, i, v: x.index_fill(x.shape[1] - 3, i, v).exp(),
    "without axes": lambda x, i, v: x[0, 1].index_fill(-1, i.new_zeros(1), v).exp(),
    "without axes, in place": lambda x, i, v: (x.sum() * 1).index_fill_(0, i.new_zeros(()), v).exp(),
}


@pytest.mark.parametrize("name", FILLS)
@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("places", [[0, 2], [1, 1, 0], []])
def test_gradients_of_tensor_and_value(name: str, learns: bool, places: list[int]) -> None:
    fn, index = FILLS[name], torch.tensor(places, dtype=torch.int64)

    def run(fn: Callable[..., Tensor]) -> list[Any]:
        x = torch.linspace(-1, 1, 12).view(4, 3).requires_grad_(learns)
        v = torch.tensor(0.5, requires_grad=True)
        result = fn(x, index, v)
        if result.requires_grad:
            result.square().sum().backward()
        return [result.detach(), x.grad, v.grad]

    armature.reset()
    with session().recording() as records:
        found = run(armature.compile(fn, fullgraph=True))
    torch.testing.assert_close(found, run(fn))
    assert found[0].stride() == run(fn)[0].stride()
    assert [one.reason for one in records.compilations] == [""]


def test_places_outside_are_refused() -> None:
    x, v = torch.ones(3), torch.tensor(1.0, requires_grad=True)
    armature.reset()
    with pytest.raises((IndexError, RuntimeError)):
        armature.compile(FILLS["function"])(x, torch.tensor([5]), v)
