"""Recurrent networks with dropout between their layers: a call for each layer, with `torch.dropout` in between.

torch's decompositions of these operators lose the dropout (`_rnn_helper` sets it to zero for every layer), so a network
would be trained without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, fx

aten = torch.ops.aten
NAMES = ("lstm", "gru", "rnn_tanh", "rnn_relu")
TARGETS: dict[Callable[..., object], str] = {
    function: name
    for name in NAMES
    for function in (
        getattr(torch, name),
        getattr(torch._VF, name),
        getattr(aten, name).input,
        getattr(aten, name).data,
    )
}


def by_layer(
    name: str,
    x: Tensor,
    hidden: Tensor | Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool = False,
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The operator of that name, layer by layer, as eager mode computes it: output and last states.

    x: [steps, batch, features], [batch, steps, features] with `batch_first`, or packed data with its batch sizes.
    hidden: [layers * directions, batch, width], two of these for an LSTM. params: of all layers, in torch's order.
    """
    operator = getattr(aten, name)
    states = [hidden] if isinstance(hidden, Tensor) else list(hidden)
    directions, each = 2 if bidirectional else 1, len(params) // num_layers
    out = x.transpose(0, 1) if batch_first else x  # dropout's random numbers are drawn step by step in either form
    last: list[list[Tensor]] = [[] for _ in states]
    for layer in range(num_layers):
        own = [state[layer * directions : (layer + 1) * directions] for state in states]
        given = own[0] if isinstance(hidden, Tensor) else own
        rest = (given, params[layer * each : (layer + 1) * each], has_biases, 1, 0.0, train, bidirectional)
        if batch_sizes is None:
            found = operator.input(out, *rest, False)
        else:
            found = operator.data(out, batch_sizes, *rest)
        out = found[0]
        for parts, state, before in zip(last, found[1:], own, strict=True):
            parts.append(state.view(before.shape))  # torch 2.11's decomposition of an LSTM adds a dimension
        if dropout and train and layer < num_layers - 1:
            out = torch.dropout(out, dropout, True)
    return (out.transpose(0, 1) if batch_first else out, *(torch.cat(parts) for parts in last))


def keep_dropout(module: object, ctx: object) -> object:
    """Pass over the captured graph: recurrent networks with dropout between layers are called layer by layer."""
    if isinstance(module, fx.GraphModule):
        for node in module.graph.nodes:
            if (name := TARGETS.get(node.target)) and len(node.args) == 9:
                _keep(node, name)
        module.recompile()
    return module


def _keep(node: fx.Node, name: str) -> None:
    packed = isinstance(node.args[3], (tuple, list))  # batch sizes come before the states, followed by the parameters
    data, *rest = node.args
    batch_sizes = rest.pop(0) if packed else None
    num_layers, dropout, train = rest[3:6]
    if dropout and train and num_layers != 1 and not (name == "lstm" and not packed):  # these have a pass of their own
        node.target, node.args = by_layer, (name, data, *rest)
        node.kwargs = {"batch_sizes": batch_sizes} if packed else {}
