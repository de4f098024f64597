"""Layers of LSTM and GRU as one loop over time: operators for what the steps compute, with gradients.

The products of all steps' inputs with their weights, and the weights' gradients, are products of the graph. What is
left is one operator forward and one backward. Sequences are [steps, batch, ...], x the inputs' part of the gates, w the
weights of the state's part, h and c the states before the first step that is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from armature.backend_api import Builder, CallInstead, TensorValue
from armature.plugin_api import Lowering

Kernel = Callable[..., None]
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, bool, bool]
"""Of a forward operator."""


class Results(NamedTuple):
    """Of an LSTM's loop. cells, gates: at each step, for backward; without elements unless they are saved."""

    out: Tensor
    h: Tensor
    c: Tensor
    cells: Tensor
    gates: Tensor


# -- memory for the results, and the kernels that fill it


def lstm_results(x: Tensor, h: Tensor, c: Tensor, save: bool) -> Results:
    """Memory for them."""
    shape = (x.shape[0], x.shape[1], h.shape[-1])
    saved = (x.new_empty(shape), x.new_empty(x.shape)) if save else (x.new_empty((0,)), x.new_empty((0,)))
    return Results(x.new_empty(shape), h.new_empty(h.shape), c.new_empty(c.shape), *saved)


def gru_results(x: Tensor, h: Tensor, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Memory for the output, the last state, and the gates with the state's part of the last one, if saved."""
    shape = (x.shape[0], x.shape[1], h.shape[-1])
    saved = x.new_empty((*shape[:2], 4 * shape[2]) if save else (0,))
    return x.new_empty(shape), h.new_empty(h.shape), saved


def run_lstm(
    kernel: Kernel, x: Tensor, w: Tensor, h: Tensor, c: Tensor, reverse: bool, save: bool
) -> tuple[Tensor, ...]:
    made = lstm_results(x, h, c, save)
    kernel(*(t.contiguous() for t in (x, w, h, c)), *made, *made.out.shape, int(reverse), int(save))
    return made


def run_lstm_backward(
    kernel: Kernel, w: Tensor, c: Tensor, cells: Tensor, gates: Tensor, d_out: Tensor, d_h: Tensor, d_c: Tensor,
    reverse: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    made = gates.new_empty(gates.shape), d_h.new_empty(d_h.shape), d_c.new_empty(d_c.shape)
    given = (w, c, cells, gates, d_out, d_h, d_c)
    kernel(*(t.contiguous() for t in given), *made, *d_out.shape, int(reverse))
    return made


def run_gru(
    kernel: Kernel, x: Tensor, w: Tensor, b: Tensor, h: Tensor, reverse: bool, save: bool
) -> tuple[Tensor, ...]:
    made = gru_results(x, h, save)
    kernel(*(t.contiguous() for t in (x, w, b, h)), *made, *made[0].shape, int(reverse), int(save))
    return made


def run_gru_backward(
    kernel: Kernel, w: Tensor, h: Tensor, out: Tensor, gates: Tensor, d_out: Tensor, d_h: Tensor, reverse: bool
) -> tuple[Tensor, ...]:
    shape = (*out.shape[:2], 3 * out.shape[2])
    made = out.new_empty(shape), out.new_empty(shape), h.new_empty(h.shape)
    kernel(*(t.contiguous() for t in (w, h, out, gates, d_out, d_h)), *made, *out.shape, int(reverse))
    return made


# -- the operators as torch's functions, for graphs that run without kernels


def _order(x: Tensor, reverse: bool) -> list[int]:
    return list(range(x.shape[0]))[:: -1 if reverse else 1]


def lstm_loop(
    x: Tensor, w: Tensor, h: Tensor, c: Tensor, reverse: bool, save: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Output, last states, and what backward needs."""
    made = lstm_results(x, h, c, save)
    for t in _order(x, reverse):
        i, f, g, o = (x[t] + h @ w.t()).chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        h = o * c.tanh()
        made.out[t] = h
        if save:
            made.cells[t], made.gates[t] = c, torch.cat([i, f, g, o], -1)
    made.h.copy_(h)
    made.c.copy_(c)
    return made


def lstm_loop_backward(
    w: Tensor, c: Tensor, cells: Tensor, gates: Tensor, d_out: Tensor, d_h: Tensor, d_c: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, h and c."""
    d_x, order = torch.empty_like(gates), _order(gates, reverse)
    for at, t in reversed(list(enumerate(order))):
        i, f, g, o = gates[t].chunk(4, -1)
        held, before = cells[t].tanh(), cells[order[at - 1]] if at else c
        d_h = d_h + d_out[t]
        d_c = d_c + d_h * o * (1 - held * held)
        parts = d_c * g * i * (1 - i), d_c * before * f * (1 - f), d_c * i * (1 - g * g), d_h * held * o * (1 - o)
        d_x[t] = torch.cat(parts, -1)
        d_h, d_c = d_x[t] @ w, d_c * f
    return d_x, d_h, d_c


def gru_loop(x: Tensor, w: Tensor, b: Tensor, h: Tensor, reverse: bool, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Output, last state, and what backward needs. b: added to the state's part of the gates."""
    out, last, saved = gru_results(x, h, save)
    for t in _order(x, reverse):
        given, own = x[t].chunk(3, -1), (h @ w.t() + b).chunk(3, -1)
        r, u = (given[0] + own[0]).sigmoid(), (given[1] + own[1]).sigmoid()
        n = (given[2] + r * own[2]).tanh()
        h = n + u * (h - n)
        out[t] = h
        if save:
            saved[t] = torch.cat([r, u, n, own[2]], -1)
    last.copy_(h)
    return out, last, saved


def gru_loop_backward(
    w: Tensor, h: Tensor, out: Tensor, gates: Tensor, d_out: Tensor, d_h: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, of the state's part of the gates, and of h."""
    d_x, order = out.new_empty((*out.shape[:2], 3 * out.shape[2])), _order(gates, reverse)
    d_s = torch.empty_like(d_x)
    for at, t in reversed(list(enumerate(order))):
        r, u, n, last = gates[t].chunk(4, -1)
        before = out[order[at - 1]] if at else h
        d_h = d_h + d_out[t]
        d_n = d_h * (1 - u) * (1 - n * n)
        d_r, d_u = d_n * last * r * (1 - r), d_h * (before - n) * u * (1 - u)
        d_x[t], d_s[t] = torch.cat([d_r, d_u, d_n], -1), torch.cat([d_r, d_u, d_n * r], -1)
        d_h = d_h * u + d_s[t] @ w
    return d_x, d_s, d_h


# -- the operators


def _weights_gradient(d_s: Tensor, h: Tensor, out: Tensor, reverse: bool) -> Tensor:
    """Of the state's part: the product of its gradients with the states before each step."""
    before = torch.cat([out[1:], h[None]] if reverse else [h[None], out[:-1]])
    return d_s.flatten(0, 1).t() @ before.flatten(0, 1)


class _Context(Protocol):
    """What backward needs of a call."""

    reverse: bool

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]: ...

    def save_for_backward(self, *tensors: Tensor) -> None: ...


def _save_lstm(ctx: _Context, inputs: Inputs, output: tuple[Tensor, ...]) -> None:
    _, w, h, c, ctx.reverse, _ = inputs
    out, _, _, cells, gates = output
    ctx.save_for_backward(w, h, c, out, cells, gates)


def _lstm_gradients(ctx: _Context, d_out: Tensor, d_h: Tensor, d_c: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    w, h, c, out, cells, gates = ctx.saved_tensors
    d_x, d_first, d_cell = operators()["lstm_backward"](w, c, cells, gates, d_out, d_h, d_c, ctx.reverse)
    return d_x, _weights_gradient(d_x, h, out, ctx.reverse), d_first, d_cell, None, None


def _save_gru(ctx: _Context, inputs: Inputs, output: tuple[Tensor, ...]) -> None:
    _, w, _, h, ctx.reverse, _ = inputs
    out, _, gates = output
    ctx.save_for_backward(w, h, out, gates)


def _gru_gradients(ctx: _Context, d_out: Tensor, d_h: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    w, h, out, gates = ctx.saved_tensors
    d_x, d_s, d_first = operators()["gru_backward"](w, h, out, gates, d_out, d_h, ctx.reverse)
    return d_x, _weights_gradient(d_s, h, out, ctx.reverse), d_s.sum((0, 1)), d_first, None, None


def _no_kernel(*given: object) -> None:
    """Instead of a kernel where results have no values."""


Function = Callable[..., tuple[Tensor, ...]]
Gradients = tuple[Callable[..., None], Callable[..., tuple[Tensor | None, ...]]]
LOOPS: dict[str, tuple[Function, Function, Gradients | None]] = {
    "lstm_forward": (lstm_loop, run_lstm, (_save_lstm, _lstm_gradients)),
    "lstm_backward": (lstm_loop_backward, run_lstm_backward, None),
    "gru_forward": (gru_loop, run_gru, (_save_gru, _gru_gradients)),
    "gru_backward": (gru_loop_backward, run_gru_backward, None),
}
"""By the name of the back end's kernel: the operator as torch's functions, with a kernel, and its gradients."""


@cache
def operators() -> dict[str, torch._ops.OpOverload]:
    """The operators by the names of their kernels; defined together with the plugin's tables."""
    made: dict[str, torch._ops.OpOverload] = {}
    for kernel, (function, run, gradients) in LOOPS.items():
        name = f"armature::{function.__name__}"  # see `rnn.training_layer` on how it is defined
        torch.library.define(name, torch.library.infer_schema(function, mutates_args=()))
        torch.library.impl(name, "CPU", function)
        torch.library.impl(name, "Meta", partial(run, _no_kernel))
        if gradients is not None:
            torch.library.register_autograd(name, gradients[1], setup_context=gradients[0])
        made[kernel] = getattr(torch.ops.armature, function.__name__).default
    return made


def lowerings() -> Iterator[Lowering]:
    """The back end's kernels, if it has them."""
    for name, op in operators().items():
        yield Lowering(op, partial(_with_kernel, name))


def _with_kernel(name: str, b: Builder, first: TensorValue, *rest: object) -> CallInstead | None:
    found = b.features.recurrence
    if found is None:
        return None
    return CallInstead(partial(LOOPS[name][1], found.kernel(name, first.dtype, b.ctx)), "a loop over time")


# -- layers


def fits(tensors: Sequence[Tensor], dtypes: Collection[torch.dtype]) -> bool:
    """Whether loops are used for these, of which the first one is the input: all of one of the dtypes, on the CPU."""
    x = tensors[0]
    if x.dtype not in dtypes or torch.is_autocast_enabled("cpu"):
        return False
    same = all(t.device.type == "cpu" and t.dtype == x.dtype for t in tensors)
    return same and x.dim() == 3 and x.shape[0] > 0 and x.shape[1] > 0


def lstm_layer(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], reverse: bool, save: bool
) -> tuple[Tensor, ...]:
    """Output and last states of one layer in one direction."""
    w, own, *biases = weights
    given = torch.nn.functional.linear(x, w, biases[0] + biases[1] if biases else None)
    return tuple(operators()["lstm_forward"](given, own, *states, reverse, save)[:3])


def gru_layer(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], reverse: bool, save: bool
) -> tuple[Tensor, ...]:
    """Output and last state of one layer in one direction."""
    w, own, *biases = weights
    given = torch.nn.functional.linear(x, w, biases[0] if biases else None)
    bias = biases[1] if biases else own.new_zeros((own.shape[0],))
    return tuple(operators()["gru_forward"](given, own, bias, *states, reverse, save)[:2])
