"""Dropout between the layers of recurrent networks: the numbers, gradients and generator of eager mode."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import rnn

import armature

NETWORKS: dict[str, Callable[..., nn.RNNBase]] = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": functools.partial(nn.RNN, nonlinearity="tanh"),
    "relu": functools.partial(nn.RNN, nonlinearity="relu"),
}
# One kind with all forms, one form with all kinds; the others run with the long tests.
QUICK_KIND, QUICK_FORM = "gru", "both directions"
FORMS = {
    "two layers": {"num_layers": 2},
    "both directions": {"num_layers": 3, "bidirectional": True, "batch_first": True},
    "no biases": {"num_layers": 2, "bias": False},
}


def results(run: Callable[..., Any], network: nn.RNNBase, x: Any, backward: bool) -> list[Tensor]:
    torch.manual_seed(5)
    out, states = run(x)
    out = out.data if isinstance(out, rnn.PackedSequence) else out
    found = [out, *(states if isinstance(states, tuple) else (states,))]
    if backward:
        sum((part * part).sum() for part in list(found)).backward()
        found += [p.grad for p in network.parameters()]
    return [*found, torch.get_rng_state()]


def alike(network: nn.RNNBase, x: Any, backward: bool) -> None:
    other = copy.deepcopy(network)
    with torch.set_grad_enabled(backward):
        expected = results(network, network, x, backward)
        found = results(armature.compile(other), other, x, backward)
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert got.stride() == want.stride()


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(name, form, marks=() if name == QUICK_KIND or form == QUICK_FORM else pytest.mark.slow)
        for name in NETWORKS
        for form in FORMS
    ],
)
def test_drops_what_eager_mode_drops(name: str, form: str, backward: bool) -> None:
    alike(NETWORKS[name](5, 7, dropout=0.4, **FORMS[form]), torch.randn(4, 6, 5), backward)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == QUICK_KIND else pytest.mark.slow) for name in NETWORKS]
)
def test_in_double_precision(name: str) -> None:
    alike(NETWORKS[name](5, 7, num_layers=2, dropout=0.4).double(), torch.randn(4, 6, 5).double(), backward=True)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == QUICK_KIND else pytest.mark.slow) for name in NETWORKS]
)
def test_packed_sequences(name: str) -> None:
    x = rnn.pack_padded_sequence(torch.randn(4, 3, 5), torch.tensor([4, 3, 1]))
    alike(NETWORKS[name](5, 7, num_layers=2, dropout=0.4), x, backward=True)


def test_an_lstm_with_projections() -> None:
    alike(nn.LSTM(5, 7, num_layers=2, proj_size=3, dropout=0.4), torch.randn(4, 6, 5), backward=True)


def test_nothing_is_dropped_in_evaluation() -> None:
    alike(nn.GRU(5, 7, num_layers=2, dropout=0.4).eval(), torch.randn(4, 6, 5), backward=True)
