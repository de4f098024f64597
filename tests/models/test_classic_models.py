"""The benchmark's networks of torch alone: in one graph, with the loss, gradients and buffers of eager mode."""

from __future__ import annotations

import copy

import pytest
import torch

import armature
from armature.pipeline.session import session
from benchmarks.models.classic import CASES


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_trained_as_in_eager_mode(name: str) -> None:
    torch.manual_seed(0)
    case = CASES[name]()
    model = copy.deepcopy(case.model)
    armature.reset()
    compiled = armature.compile(model, fullgraph=True)
    losses = []
    for call in (case.model, compiled):
        torch.manual_seed(1)
        losses.append(case.loss(call(*case.args, **case.kwargs)))
        losses[-1].backward()
    assert session().totals().graphs == 1
    torch.testing.assert_close(losses[1], losses[0])
    largest = max(p.grad.abs().max().item() for p in case.model.parameters())
    for (where, ours), expected in zip(model.named_parameters(), case.model.parameters(), strict=True):
        scale = expected.grad.abs().max().item()
        torch.testing.assert_close(
            ours.grad,
            expected.grad,
            rtol=1e-3,
            atol=1e-4 * scale + 1e-6 * largest,
            msg=lambda text, where=where: f"{where}: {text}",
        )
    for (where, ours), expected in zip(model.named_buffers(), case.model.buffers(), strict=True):
        torch.testing.assert_close(ours, expected, msg=lambda text, where=where: f"{where}: {text}")
