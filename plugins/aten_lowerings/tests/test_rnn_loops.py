"""The operators of recurrent loops as torch's functions, which run where there is no kernel; cpu_cpp tests its kernels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from armature_aten_lowerings import rnn_loops

CELLS = {"lstm": (nn.LSTM, rnn_loops.lstm_layer, 2), "gru": (nn.GRU, rnn_loops.gru_layer, 1)}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", CELLS)
def test_a_layer_is_that_of_torch(name: str, bias: bool, reverse: bool) -> None:
    kind, layer, count = CELLS[name]
    cell = kind(6, 7, bias=bias, dtype=torch.float64)
    x = torch.randn(4, 5, 6, dtype=torch.float64, requires_grad=True)
    states = [torch.randn(5, 7, dtype=torch.float64, requires_grad=True) for _ in range(count)]
    wanted = [x, *states, *cell.parameters()]

    def gradients(results: list[Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(sum((k + 1) * part.sin().sum() for k, part in enumerate(results)), wanted)

    given = x.flip(0) if reverse else x
    first = [state[None] for state in states]
    out, last = cell(given, tuple(first) if count == 2 else first[0])
    expected = [out.flip(0) if reverse else out, *(t[0] for t in (last if count == 2 else (last,)))]
    found = list(layer(x, states, list(cell.parameters()), reverse, save=True))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found), gradients(expected))
    saved_nothing = list(layer(x.detach(), states, list(cell.parameters()), reverse, save=False))
    torch.testing.assert_close(saved_nothing, expected)


def test_results_without_values_have_the_same_shapes() -> None:
    """As fakes, while a graph is traced."""
    sizes = {"lstm_forward": ((4, 5, 28), (28, 7), (5, 7), (5, 7)), "gru_forward": ((4, 5, 21), (21, 7), (21,), (5, 7))}
    for name, shapes in sizes.items():
        op = rnn_loops.operators()[name]
        for save in (False, True):
            made = op(*(torch.randn(shape) for shape in shapes), False, save)
            fakes = op(*(torch.empty(shape, device="meta") for shape in shapes), False, save)
            assert [t.shape for t in made] == [t.shape for t in fakes]
