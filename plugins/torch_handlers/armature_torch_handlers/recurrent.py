"""LSTM on CUDA: torch's kernel inspects the memory of the weights, which fakes lack, so shapes are computed here."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from armature.plugin_api import Call, TracedTensor, Value, handles


def lstm_results(
    x: Tensor,
    hidden: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Tensors like the results of `torch.lstm`: output, hidden state and cell state."""
    h, c = hidden
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    out = x.new_empty((steps, batch, h.shape[-1] * (2 if bidirectional else 1)))
    results = [out, torch.empty_like(h), torch.empty_like(c)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, h, c, *params)):
        link = x.new_ones((), requires_grad=True)
        results = [r * link for r in results]
    out = results[0].transpose(0, 1) if batch_first else results[0]
    return out, results[1], results[2]


@handles(torch.lstm)
def lstm(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """The form for plain tensors, as called by `nn.LSTM`; packed sequences have batch sizes as second argument."""
    plain = len(args) == 9 and isinstance(args[0], TracedTensor) and not isinstance(args[1], TracedTensor)
    if not plain or kwargs or torch.is_autocast_enabled("cuda"):
        return None
    fake = args[0].as_fake(call.tracing)
    if not isinstance(fake, torch.Tensor) or fake.device.type != "cuda" or fake.dim() != 3:
        return None
    return call.graph_call_as(lstm_results, call.fn, *args)
