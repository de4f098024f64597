"""Recurrent networks whose results are described here, because torch's own functions fail on fakes.

LSTM on CUDA: torch's kernel inspects the memory of the weights, which fakes lack. GRU and plain networks on a CPU over
sequences whose length varies: their operators unroll them, a copy of the cell for each step, so that each length would
be compiled by itself. As torch's own call between the pieces of the graph they take any length.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from armature.plugin_api import BETWEEN_PIECES, Call, TracedTensor, Value, existing, handles


def results_like(
    x: Tensor,
    hidden: Tensor | Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """Tensors like the results of `torch.lstm`, `torch.gru` and their kin: the output, and the states."""
    states = (hidden,) if isinstance(hidden, Tensor) else tuple(hidden)
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    out = x.new_empty((steps, batch, states[0].shape[-1] * (2 if bidirectional else 1)))
    results = [out, *map(torch.empty_like, states)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, *states, *params)):
        link = x.new_ones((), requires_grad=True)
        results = [r * link for r in results]
    return results[0].transpose(0, 1) if batch_first else results[0], *results[1:]


@handles(torch.lstm)
def lstm(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """The form for plain tensors, as called by `nn.LSTM`; packed sequences have batch sizes as second argument."""
    plain = len(args) == 9 and isinstance(args[0], TracedTensor) and not isinstance(args[1], TracedTensor)
    if not plain or kwargs or torch.is_autocast_enabled("cuda"):
        return None
    fake = args[0].as_fake(call.tracing)
    if not isinstance(fake, torch.Tensor) or fake.device.type != "cuda" or fake.dim() != 3:
        return None
    return call.graph_call_as(results_like, call.fn, *args)


@handles(*existing("torch.gru", "torch.rnn_tanh", "torch.rnn_relu"))
def over_any_length(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """The form for plain tensors over a length that varies; the data of packed sequences has two axes."""
    x, *_, batch_first = args
    if len(args) != 9 or kwargs or not isinstance(x, TracedTensor) or torch.is_autocast_enabled("cpu"):
        return None
    fake = x.as_fake(call.tracing)
    if not isinstance(fake, torch.Tensor) or fake.device.type != "cpu" or fake.dim() != 3:
        return None
    if not batch_first.is_constant or type(fake.shape[1 if batch_first.as_constant() else 0]) is int:
        return None
    made = call.graph_call_as(results_like, call.fn, *args)
    node = next(node for node in reversed(call.tracing.recorder.graph.nodes) if node.target is call.fn)
    node.meta[BETWEEN_PIECES] = node.meta["example_value"]
    return made
