"""LSTM through the fused operators, against eager: values, gradients, and what is left of torch.lstm."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import armature
from armature_aten_lowerings import rnn_cudnn

DEVICES = [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.gpu)]
FORMS = {
    "one layer": {},
    "two layers": {"num_layers": 2},
    "both directions": {"num_layers": 2, "bidirectional": True},
    "batch first": {"batch_first": True, "bidirectional": True},
    "no biases": {"bias": False, "num_layers": 2},
    "projected": {"proj_size": 3},
}


def results(module: Any, lstm: nn.LSTM, x: Tensor, backward: bool) -> list[Tensor]:
    x = x.clone().requires_grad_(backward)
    out, (h, c) = module(x)
    found = [out, h, c]
    if backward:
        ((out * out).sum() + h.sin().sum() + c.cos().sum()).backward()
        found += [x.grad, *(p.grad for p in lstm.parameters())]
    return found


@pytest.fixture(autouse=True)
def full_precision() -> Iterator[None]:
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backward", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_lstm_matches_eager(form: str, backward: bool, device: str) -> None:
    lstm = nn.LSTM(5, 7, **FORMS[form]).to(device)
    twin = copy.deepcopy(lstm)
    twin.flatten_parameters()
    x = torch.randn(4, 6, 5, device=device)
    with torch.set_grad_enabled(backward):
        expected = results(lstm, lstm, x, backward)
        found = results(armature.compile(twin, fullgraph=True), twin, x, backward)
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert got.stride() == want.stride()


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_in_evaluation_mode(device: str) -> None:
    lstm = nn.LSTM(5, 7, num_layers=2, dropout=0.5).to(device).eval()
    twin = copy.deepcopy(lstm)
    x = torch.randn(4, 6, 5, device=device)
    with torch.backends.cudnn.flags(
        enabled=False, allow_tf32=False
    ):  # eager's own kernels give no gradients outside training
        expected = results(lstm, lstm, x, True)
    found = results(armature.compile(twin, fullgraph=True), twin, x, True)
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_dropout_between_layers_follows_the_seed(device: str) -> None:
    lstm = nn.LSTM(5, 32, num_layers=2, dropout=0.5).to(device)
    compiled = armature.compile(lstm, fullgraph=True)
    x = torch.randn(4, 6, 5, device=device)

    def run(seed: int) -> Tensor:
        torch.manual_seed(seed)
        out: Tensor = compiled(x)[0]
        return out

    first = run(0)
    assert torch.equal(first, run(0))
    assert not torch.equal(first, run(1))
    lstm.eval()
    assert not torch.allclose(first, lstm(x)[0])


@pytest.mark.gpu
@pytest.mark.parametrize("flat", [False, True], ids=["scattered", "flat"])
def test_weights_are_used_where_they_lie(flat: bool) -> None:
    lstm = nn.LSTM(5, 7, num_layers=2, bidirectional=True).cuda()
    if not flat:
        for p in lstm.parameters():
            p.data = p.data.clone()
    found = rnn_cudnn._flat([p.detach() for p in lstm._flat_weights], 5, 7, 2, 4, True)
    assert (found is not None) == flat
    if found is not None:
        assert found.data_ptr() == lstm.weight_ih_l0.data_ptr()


@pytest.mark.gpu
def test_retained_graphs_run_backward_twice() -> None:
    lstm = nn.LSTM(5, 7).cuda()
    out, _ = armature.compile(lstm, fullgraph=True)(torch.randn(4, 6, 5, device="cuda"))
    out.sum().backward(retain_graph=True)
    once = [p.grad.clone() for p in lstm.parameters()]
    out.sum().backward()
    for p, g in zip(lstm.parameters(), once, strict=True):
        torch.testing.assert_close(p.grad, 2 * g)
