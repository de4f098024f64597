"""LSTM as the fused calls that eager makes: on a CPU in training one per layer and direction, on CUDA one for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx

from armature.plugin_api import CallInstead, Lowering
from armature_aten_lowerings import rnn_cudnn

aten = torch.ops.aten
LSTM_KIND = 2  # ideep's number for an LSTM, an argument of mkldnn_rnn_layer
TARGETS = frozenset((torch.lstm, torch._VF.lstm, aten.lstm.input))  # type: ignore[attr-defined]


def lstm(
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
    """Same as `torch.lstm`. Where no gradient is asked for, or no fused kernel fits, it is that."""
    # torch's own decomposition looks at the input's requires_grad alone, and so loses the gradients of the weights.
    tensors = [x, *hidden, *params]
    wanted = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    same_width = hidden[0].shape[-1] == hidden[1].shape[-1]
    if same_width and (train or not wanted) and rnn_cudnn.fits(tensors):
        return rnn_cudnn.lstm(
            x, hidden, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, wanted
        )
    on_cpu = all(t.device.type == "cpu" and t.dtype == torch.float32 for t in tensors)
    if not (wanted and same_width and on_cpu and torch.backends.mkldnn.enabled):
        found = aten.lstm.input(x, hidden, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
        # torch 2.11's decomposition gives states with a dimension more.
        return found[0], found[1].view(hidden[0].shape), found[2].view(hidden[1].shape)
    out = x.transpose(0, 1) if batch_first else x
    directions = 2 if bidirectional else 1
    last_h: list[Tensor] = []
    last_c: list[Tensor] = []
    for layer in range(num_layers):
        halves = []
        for direction in range(directions):
            k = layer * directions + direction
            half, h, c = _layer(
                out, hidden[0][k], hidden[1][k], _weights(params, k, has_biases), direction == 1, has_biases
            )
            halves.append(half)
            last_h.append(h)
            last_c.append(c)
        out = torch.cat(halves, -1) if bidirectional else halves[0]
        if dropout and train and layer < num_layers - 1:
            out = torch.dropout(out, dropout, True)
    out = out.transpose(0, 1) if batch_first else out
    return out, torch.stack(last_h), torch.stack(last_c)


def _weights(params: Sequence[Tensor], k: int, has_biases: bool) -> list[Tensor]:
    if has_biases:
        return list(params[4 * k : 4 * k + 4])
    own = list(params[2 * k : 2 * k + 2])
    return own + [torch.zeros_like(own[0][:, 0])] * 2


def _layer(
    x: Tensor, h: Tensor, c: Tensor, weights: Sequence[Tensor], reverse: bool, has_biases: bool
) -> tuple[Tensor, Tensor, Tensor]:
    out, last_h, last_c, _ = training_layer()(
        x.contiguous(), *weights, h.unsqueeze(0).contiguous(), c.unsqueeze(0).contiguous(), reverse, has_biases
    )
    return out, last_h.squeeze(0), last_c.squeeze(0)


def _numbers(h: Tensor, reverse: bool, has_biases: bool) -> tuple[object, ...]:
    """What mkldnn_rnn_layer takes after the tensors, for one layer in one direction."""
    return (reverse, [], LSTM_KIND, h.shape[-1], 1, has_biases, False, False, True)


def _run(
    x: Tensor, w0: Tensor, w1: Tensor, b0: Tensor, b1: Tensor, h: Tensor, c: Tensor, reverse: bool, has_biases: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One layer with the workspace that its gradient needs."""
    # aten makes the workspace only while gradients are on, and a compiled forward runs with gradients off.
    with torch.enable_grad():
        given = [t.detach() for t in (x, w0, w1, b0, b1, h, c)]
        return aten.mkldnn_rnn_layer.default(*given, *_numbers(h, reverse, has_biases))  # type: ignore[no-any-return]


def _fake(
    x: Tensor, w0: Tensor, w1: Tensor, b0: Tensor, b1: Tensor, h: Tensor, c: Tensor, reverse: bool, has_biases: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Shapes; the workspace counts as empty, since only the library knows its size."""
    out = x.new_empty((x.shape[0], x.shape[1], h.shape[-1]))
    return out, torch.empty_like(h), torch.empty_like(c), x.new_empty((0,), dtype=torch.uint8)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:7], *output)
    ctx.flags = inputs[7:]


def _backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    x, w0, w1, b0, b1, h, c, out, last_h, last_c, workspace = ctx.saved_tensors
    reverse, has_biases = ctx.flags
    found = aten.mkldnn_rnn_layer_backward.default(
        x, w0, w1, b0, b1, h, c, out, last_h, last_c, *grads[:3],
        reverse, LSTM_KIND, h.shape[-1], 1, has_biases, True, False, [], False, workspace,
    )  # fmt: skip
    return (*found[:7], None, None)


@cache
def training_layer() -> torch._ops.OpOverload:
    """The operator for one LSTM layer in one direction, with gradients; defined with the plugin's tables."""
    # Not torch.library.custom_op: what it checks around each call takes 0.2 ms.
    name = "armature::lstm_layer"
    torch.library.define(name, torch.library.infer_schema(_run, mutates_args=()))
    torch.library.impl(name, "CPU", _run)
    torch.library.register_fake(name, _fake)
    torch.library.register_autograd(name, _backward, setup_context=_save)
    return torch.ops.armature.lstm_layer.default  # type: ignore[no-any-return]


def lowerings() -> Iterator[Lowering]:
    """The operator's own function: through the dispatcher, twice into Python, a call takes 50 us longer."""
    yield Lowering(training_layer(), lambda builder, *args: CallInstead(_run))


def use_fused_layers(module: object, ctx: object) -> object:
    """Pass over the captured graph: calls of `torch.lstm` go to `lstm`."""
    if isinstance(module, fx.GraphModule):
        for node in module.graph.nodes:
            # The form for packed sequences has the batch sizes where this one has the hidden state.
            if node.target in TARGETS and isinstance(node.args[1], (tuple, list)):
                node.target = lstm
        module.recompile()
    return module
