"""LSTM on CUDA: cuDNN's fused kernels, all layers in one call, as eager makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from armature.backend_api import CallInstead
from armature.plugin_api import Lowering

aten = torch.ops.aten
LSTM_KIND = 2  # cuDNN's number for an LSTM, an argument of _cudnn_rnn
LAYER = "a recurrent layer of cuDNN"
NAME, BACKWARD_NAME = "armature::cudnn_lstm", "armature::cudnn_lstm_backward"
Offsets = tuple[int, ...]


def fits(tensors: Sequence[Tensor]) -> bool:
    """Whether cuDNN supports these: one dtype that it knows, all on CUDA."""
    first = tensors[0]
    if first.dtype not in (torch.float32, torch.float16) or not torch.backends.cudnn.is_acceptable(first):
        return False
    return all(t.device == first.device and t.dtype == first.dtype for t in tensors)


class Options(NamedTuple):
    """The last arguments of `torch.lstm`."""

    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool


def lstm(
    x: Tensor, hidden: Sequence[Tensor], params: Sequence[Tensor], options: Options, *, gradients: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Equivalent to `torch.lstm` on CUDA, for hidden and cell states of one width. `gradients`: whether any are
    needed."""
    has_biases, num_layers, dropout, train, bidirectional, batch_first = options
    out = x.transpose(0, 1) if batch_first else x
    directions = 2 if bidirectional else 1
    # cuDNN's own dropout uses a generator of its own; torch's, between the layers, follows torch's seed.
    drops = dropout > 0 and train and num_layers > 1
    group = 1 if drops else num_layers
    states, cells = [], []
    tensors = directions * (4 if has_biases else 2)
    for layer in range(0, num_layers, group):
        rows = slice(layer * directions, (layer + group) * directions)
        weights = list(params[layer * tensors : (layer + group) * tensors])
        h, c = hidden[0][rows].contiguous(), hidden[1][rows].contiguous()
        out, h, c, _, _ = _operator()(out.contiguous(), weights, h, c, has_biases, group, gradients, bidirectional)
        states.append(h)
        cells.append(c)
        if drops and layer < num_layers - 1:
            out = torch.dropout(out, dropout, True)
    out = out.transpose(0, 1) if batch_first else out
    hidden_state, cell_state = (t[0] if len(t) == 1 else torch.cat(t) for t in (states, cells))
    return out, hidden_state, cell_state


def _run(
    x: Tensor,
    weights: Sequence[Tensor],
    h: Tensor,
    c: Tensor,
    has_biases: bool,
    layers: int,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`x` (steps, batch, inputs), the states (layers * directions, batch, width). Also returns cuDNN's two buffers."""
    stride = 4 if has_biases else 2
    flat = _flat(weights, x.shape[-1], h.shape[-1], layers, stride, bidirectional)
    found = aten._cudnn_rnn.default(
        x, weights, stride, flat, h, c, LSTM_KIND, h.shape[-1], 0, layers, False, 0.0, train, bidirectional, [], None
    )
    # An operator may not return its input, and its backward finds the weights again.
    buffer = x.new_empty(0) if flat is not None else found[4]
    return (*found[:4], buffer)


def _fake(
    x: Tensor, weights: Sequence[Tensor], h: Tensor, c: Tensor, *flags: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Shapes; the buffers are empty, because only the library knows their sizes. `flags`: as for `_run`."""
    *_, bidirectional = flags
    width = h.shape[-1] * (2 if bidirectional else 1)
    out = x.new_empty((x.shape[0], x.shape[1], width))
    return out, torch.empty_like(h), torch.empty_like(c), x.new_empty((0,), dtype=torch.uint8), x.new_empty((0,))


def _run_backward(
    x: Tensor,
    weights: Sequence[Tensor],
    h: Tensor,
    c: Tensor,
    results: Sequence[Tensor],
    grads: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    bidirectional: bool,
) -> list[Tensor]:
    """Gradients of x, h, c and then the weights. `results`: output, reserve and weight buffer of the forward call."""
    stride = 4 if has_biases else 2
    out, reserve, buffer = results
    flat = buffer if buffer.numel() else _flat(weights, x.shape[-1], h.shape[-1], layers, stride, bidirectional)
    if flat is None:
        raise RuntimeError("the weights of an LSTM were moved between its forward and its backward")
    # The library accumulates the weights' gradients in the reserve, so a second backward needs a copy.
    dx, dh, dc, dw = aten._cudnn_rnn_backward.default(
        x, weights, stride, flat, h, c, out, *(g.contiguous() for g in grads), LSTM_KIND, h.shape[-1], 0, layers,
        False, 0.0, True, bidirectional, [], None, reserve.clone(), [True, True, True, True],
    )  # fmt: skip
    return [dx, dh, dc, *dw]


def _fake_backward(x: Tensor, weights: Sequence[Tensor], h: Tensor, c: Tensor, *_: object) -> list[Tensor]:
    return [torch.empty_like(t, memory_format=torch.contiguous_format) for t in (x, h, c, *weights)]


class _Context(Protocol):
    """What backward needs of a call. flags: whether there are biases, the number of layers, and whether both directions
    are computed."""

    flags: tuple[bool, int, bool]

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]: ...

    def save_for_backward(self, *tensors: Tensor) -> None: ...


def _save(
    ctx: _Context,
    inputs: tuple[Tensor, Sequence[Tensor], Tensor, Tensor, bool, int, object, bool],
    output: tuple[Tensor, ...],
) -> None:
    x, weights, h, c, has_biases, layers, _, bidirectional = inputs
    out, _, _, reserve, buffer = output
    ctx.save_for_backward(x, h, c, out, reserve, buffer, *weights)
    ctx.flags = (has_biases, layers, bidirectional)


def _backward(ctx: _Context, *grads: Tensor) -> tuple[object, ...]:
    x, h, c, out, reserve, buffer, *weights = ctx.saved_tensors
    backward = torch.ops.armature.cudnn_lstm_backward.default
    dx, dh, dc, *dw = backward(x, weights, h, c, [out, reserve, buffer], list(grads[:3]), *ctx.flags)
    return dx, dw, dh, dc, None, None, None, None


def _flat(
    weights: Sequence[Tensor], inputs: int, width: int, layers: int, stride: int, bidirectional: bool
) -> Tensor | None:
    """The flat memory of the weights as the library needs it (`nn.LSTM.flatten_parameters`); None if they are not
    flat."""
    first = weights[0]
    total, offsets = _layout(first.dtype, first.device, inputs, width, layers, stride, bidirectional)
    storage = first.untyped_storage()
    if storage.nbytes() != total * first.element_size() or not all(w.is_contiguous() for w in weights):
        return None
    start = storage.data_ptr()
    if any(w.data_ptr() - start != o for w, o in zip(weights, offsets, strict=True)):
        return None
    return first.detach().as_strided((total,), (1,), 0)


@cache
def _layout(
    dtype: torch.dtype, device: torch.device, inputs: int, width: int, layers: int, stride: int, bidirectional: bool
) -> tuple[int, Offsets]:
    """Size of the flat weights in elements, and each weight's offset in bytes, found by letting the library flatten
    some."""
    directions = 2 if bidirectional else 1
    made: list[Tensor] = []
    for layer in range(layers):
        for _ in range(directions):
            columns = inputs if layer == 0 else width * directions
            made += [torch.empty(4 * width, n, dtype=dtype, device=device) for n in (columns, width)]
            made += [torch.empty(4 * width, dtype=dtype, device=device) for _ in range(stride - 2)]
    with torch.no_grad():
        flat = aten._cudnn_rnn_flatten_weight.default(
            made, stride, inputs, LSTM_KIND, width, 0, layers, False, bidirectional
        )
    return flat.numel(), tuple(w.data_ptr() - flat.data_ptr() for w in made)


def lowerings() -> Iterator[Lowering]:
    """The operators' own functions: the dispatcher would enter Python twice on the way to them."""
    forward = _operator()
    yield Lowering(forward, lambda builder, *args: CallInstead(_run, LAYER))
    backward = torch.ops.armature.cudnn_lstm_backward.default
    yield Lowering(backward, lambda builder, *args: CallInstead(_run_backward, LAYER))


@cache
def _operator() -> torch._ops.OpOverload:
    """The operator for all layers of an LSTM, with gradients; defined together with the plugin's tables."""
    for name, run, fake in ((NAME, _run, _fake), (BACKWARD_NAME, _run_backward, _fake_backward)):
        torch.library.define(name, torch.library.infer_schema(run, mutates_args=()))
        torch.library.impl(name, "CUDA", run)
        torch.library.impl(name, "Meta", fake)  # not register_fake, as for the layer of `rnn`
    torch.library.register_autograd(NAME, _backward, setup_context=_save)
    return torch.ops.armature.cudnn_lstm.default
