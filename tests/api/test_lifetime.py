"""Compiled code keeps nothing of the user's alive."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

import armature


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("train", [False, True])
def test_a_model_and_its_inputs_die_when_their_user_lets_go(backend: str, train: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(2, 4)
    compiled = armature.compile(model, backend=backend)
    with torch.set_grad_enabled(train):
        result = compiled(x)
        if train:
            result.sum().backward()
    references = [weakref.ref(model), weakref.ref(model[0].weight), weakref.ref(x)]
    del model, compiled, x, result
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
