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
        # By their norms: a number that rounding takes across the edge of a relu changes a few elements by more.
        off, size = (ours.grad - expected.grad).norm().item(), expected.grad.norm().item()
        assert off <= 5e-3 * size + 2e-6 * largest * expected.numel() ** 0.5, where
    for (where, ours), expected in zip(model.named_buffers(), case.model.buffers(), strict=True):
        torch.testing.assert_close(ours, expected, msg=lambda text, where=where: f"{where}: {text}")


@pytest.mark.parametrize("checks_mask", [True, False])
def test_an_encoder_with_padding_asks_whether_it_is_compiled(checks_mask: bool) -> None:
    """torch's encoder takes nested tensors in eager mode, and not in compiled code unless it is told to."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, mask_check=checks_mask).eval()
    x, padded = torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    padded[0, 3:] = True
    armature.reset()
    with torch.no_grad():
        found, expected = armature.compile(model)(x, src_key_padding_mask=padded), model(x, src_key_padding_mask=padded)
        model.use_nested_tensor = False
        without = model(x, src_key_padding_mask=padded)
    torch.testing.assert_close(found[~padded], expected[~padded])
    assert not expected[padded].any()
    torch.testing.assert_close(found, without if checks_mask else expected)
