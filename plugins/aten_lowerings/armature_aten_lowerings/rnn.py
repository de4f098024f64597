"""LSTM and GRU as few calls. On a CPU one loop for each layer and direction, where the back end has faster ones. Else,
for an LSTM, those that eager makes: in training on a CPU one for each layer and direction, on CUDA one in total."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial
from typing import Protocol

import torch
from torch import Tensor, fx

from armature.backend_api import CallInstead
from armature.plugin_api import Lowering, Services
from armature_aten_lowerings import rnn_cudnn, rnn_loops
from armature_aten_lowerings.rnn_dropout import by_layer

aten = torch.ops.aten
LSTM_KIND = 2  # ideep's number for an LSTM, an argument of mkldnn_rnn_layer
NARROW_GRADIENTS = torch.__version__ >= "2.13"
"""Whether its gradients have the dtype of its arguments. torch 2.11 makes them in float32 and says the other."""
TARGETS = frozenset((torch.lstm, torch._VF.lstm, aten.lstm.input))
GRU_TARGETS = frozenset((torch.gru, torch._VF.gru, aten.gru.input))
Layer = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor], bool], Sequence[Tensor]]
"""A layer in one direction: its input, states and weights, and whether it is reversed, to output and last states."""


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
    last_step: bool = False,
    loops: Collection[torch.dtype] = (),
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Equivalent to `torch.lstm`, which is called if no gradient is needed, or no fused kernel fits.

    last_step: neither the states nor any step of the output but the last are read, so only that step need be returned.
    In backward, a layer is then finished after one step. loops: dtypes whose layers are loops of the back end.
    """
    options = rnn_cudnn.Options(has_biases, num_layers, dropout, train, bidirectional, batch_first)
    if type(x) is Tensor:  # the graph runs operator by operator, perhaps for second derivatives
        return torch.lstm(x, list(hidden), list(params), *options)
    # torch's own decomposition only checks the input's requires_grad, and so loses the gradients of the weights.
    tensors = [x, *hidden, *params]
    wanted = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    same_width = hidden[0].shape[-1] == hidden[1].shape[-1]
    if same_width and (train or not wanted) and rnn_cudnn.fits(tensors):
        return rnn_cudnn.lstm(x, hidden, params, options, gradients=wanted)
    # The threads of a loop share the rows of the batch; oneDNN's divide the products of a single one too.
    shared = wanted or torch.get_num_threads() == 1 or x.shape[0 if batch_first else 1] > 1
    if same_width and shared and rnn_loops.fits(tensors, loops):
        out, (h, c) = _layers(x, hidden, params, options, last_step, partial(rnn_loops.lstm_layer, save=wanted))
        return out, h, c
    on_cpu = all(t.device.type == "cpu" and t.dtype == torch.float32 for t in tensors)
    if same_width and on_cpu and torch.backends.mkldnn.enabled and torch.is_autocast_enabled("cpu"):
        # It casts what oneDNN's layer is given, but knows neither our operator nor, in inference mode, torch's.
        narrow = torch.get_autocast_dtype("cpu")
        if wanted and not NARROW_GRADIENTS:
            with torch.autocast("cpu", enabled=False):
                out, h, c = lstm(x, hidden, params, *options, last_step)
            return out.to(narrow), None if h is None else h.to(narrow), None if c is None else c.to(narrow)
        x, hidden, params = x.to(narrow), [t.to(narrow) for t in hidden], [t.to(narrow) for t in params]
    if not (wanted and same_width and on_cpu and torch.backends.mkldnn.enabled):
        if last_step and bidirectional and same_width and on_cpu and not (dropout and train):
            return _last_step(x, hidden, params, has_biases, num_layers, train, batch_first), None, None
        if dropout and train:
            out, h, c = by_layer("lstm", x, hidden, params, *options)
            return out, h, c
        found = aten.lstm.input(x, hidden, params, *options)
        # torch 2.11's decomposition returns states with an extra dimension.
        return found[0], found[1].view(hidden[0].shape), found[2].view(hidden[1].shape)
    out, (h, c) = _layers(x, hidden, params, options, last_step, _layer)
    return out, h, c


def gru(
    x: Tensor,
    hidden: Tensor,
    params: Sequence[Tensor],
    *given: *tuple[bool, int, float, bool, bool, bool],
    last_step: bool = False,
    loops: Collection[torch.dtype] = (),
) -> tuple[Tensor, Tensor | None]:
    """Equivalent to `torch.gru`. given: its options. last_step, loops: as for `lstm`."""
    options = rnn_cudnn.Options(*given)
    if type(x) is Tensor:
        return torch.gru(x, hidden, list(params), *options)
    tensors = [x, hidden, *params]
    if rnn_loops.fits(tensors, loops):
        wanted = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        out, (h,) = _layers(x, [hidden], params, options, last_step, partial(rnn_loops.gru_layer, save=wanted))
        return out, h
    dropped = options.dropout and options.train and options.num_layers > 1
    run = partial(by_layer, "gru") if dropped else aten.gru.input
    out, h = run(x, hidden, params, *options)
    return out, h


def _layers(
    x: Tensor,
    hidden: Sequence[Tensor],
    params: Sequence[Tensor],
    options: rnn_cudnn.Options,
    last_step: bool,
    layer_of: Layer,
) -> tuple[Tensor, list[Tensor | None]]:
    """Layer by layer, in each direction: output and last states."""
    has_biases, num_layers, dropout, train, bidirectional, batch_first = options
    out = x.transpose(0, 1) if batch_first else x
    directions, each = 2 if bidirectional else 1, 4 if has_biases else 2
    last: list[list[Tensor]] = [[] for _ in hidden]
    for layer in range(num_layers):
        halves = []
        for direction in range(directions):
            k = layer * directions + direction
            at_end = last_step and bidirectional and layer == num_layers - 1
            given, weights = out[-1:] if at_end and direction == 1 else out, params[each * k : each * (k + 1)]
            half, *states = layer_of(given, [state[k] for state in hidden], weights, direction == 1)
            halves.append(half[-1:] if at_end else half)
            for parts, state in zip(last, states, strict=True):
                parts.append(state)
        out = torch.cat(halves, -1) if bidirectional else halves[0]
        if dropout and train and layer < num_layers - 1:
            out = torch.dropout(out, dropout, True)
    out = out.transpose(0, 1) if batch_first else out
    return out, [None if last_step else torch.stack(parts) for parts in last]


def _last_step(
    x: Tensor,
    hidden: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    train: bool,
    batch_first: bool,
) -> Tensor:
    """The last step of a bidirectional LSTM's output, as a sequence of length one."""
    below, each = 2 * (num_layers - 1), 4 if has_biases else 2
    states = [(h[:below], h[below : below + 1], h[below + 1 :]) for h in hidden]
    weights = [params[: below * each], params[below * each : (below + 1) * each], params[(below + 1) * each :]]
    if below:
        first = [part[0] for part in states]
        x = aten.lstm.input(x, first, weights[0], has_biases, num_layers - 1, 0.0, train, True, batch_first)[0]
    end = x[:, -1:] if batch_first else x[-1:]
    halves = [
        aten.lstm.input(given, [part[k] for part in states], weights[k], has_biases, 1, 0.0, train, False, batch_first)
        for k, given in ((1, x), (2, end))
    ]
    forward = halves[0][0]
    return torch.cat([forward[:, -1:] if batch_first else forward[-1:], halves[1][0]], -1)


def _layer(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """By oneDNN, with gradients."""
    has_biases = len(weights) == 4
    biases = [] if has_biases else [torch.zeros_like(weights[0][:, 0])] * 2
    h, c = (state.unsqueeze(0).contiguous() for state in states)
    out, last_h, last_c, _ = training_layer()(x.contiguous(), *weights, *biases, h, c, reverse, has_biases)
    return out, last_h.squeeze(0), last_c.squeeze(0)


def _numbers(h: Tensor, reverse: bool, has_biases: bool) -> tuple[object, ...]:
    """The arguments of mkldnn_rnn_layer after the tensors, for one layer in one direction."""
    return (reverse, [], LSTM_KIND, h.shape[-1], 1, has_biases, False, False, True)


def _run(
    x: Tensor, w0: Tensor, w1: Tensor, b0: Tensor, b1: Tensor, h: Tensor, c: Tensor, reverse: bool, has_biases: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One layer with the workspace that its gradient needs."""
    # aten only makes the workspace while gradients are on, and a compiled forward runs with gradients off.
    with torch.enable_grad():
        given = [t.detach() for t in (x, w0, w1, b0, b1, h, c)]
        made: tuple[Tensor, Tensor, Tensor, Tensor] = aten.mkldnn_rnn_layer.default(
            *given, *_numbers(h, reverse, has_biases)
        )
        return made


def _fake(
    x: Tensor, w0: Tensor, w1: Tensor, b0: Tensor, b1: Tensor, h: Tensor, c: Tensor, reverse: bool, has_biases: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Shapes; the workspace is empty, because only the library knows its size."""
    out = x.new_empty((x.shape[0], x.shape[1], h.shape[-1]))
    return out, torch.empty_like(h), torch.empty_like(c), x.new_empty((0,), dtype=torch.uint8)


class _Context(Protocol):
    """What backward needs of a call. flags: whether the direction is reversed, and whether there are biases."""

    flags: tuple[bool, bool]

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]: ...

    def save_for_backward(self, *tensors: Tensor) -> None: ...


def _save(
    ctx: _Context,
    inputs: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, bool, bool],
    output: tuple[Tensor, ...],
) -> None:
    ctx.save_for_backward(*inputs[:7], *output)
    ctx.flags = inputs[7:]


def _backward(ctx: _Context, *grads: Tensor) -> tuple[Tensor | None, ...]:
    x, w0, w1, b0, b1, h, c, out, last_h, last_c, workspace = ctx.saved_tensors
    reverse, has_biases = ctx.flags
    found = aten.mkldnn_rnn_layer_backward.default(
        x, w0, w1, b0, b1, h, c, out, last_h, last_c, *grads[:3],
        reverse, LSTM_KIND, h.shape[-1], 1, has_biases, True, False, [], False, workspace,
    )  # fmt: skip
    return (*found[:7], None, None)


@cache
def training_layer() -> torch._ops.OpOverload:
    """The operator for one LSTM layer in one direction, with gradients; defined together with the plugin's tables."""
    # Not torch.library.custom_op, whose checks take 0.2 ms per call. Nor register_fake, which searches the files of all
    # modules for the function's source (20 ms): the meta kernel's shapes suffice.
    name = "armature::lstm_layer"
    torch.library.define(name, torch.library.infer_schema(_run, mutates_args=()))
    torch.library.impl(name, "CPU", _run)
    torch.library.impl(name, "Meta", _fake)
    torch.library.register_autograd(name, _backward, setup_context=_save)
    return torch.ops.armature.lstm_layer.default


def lowerings() -> Iterator[Lowering]:
    """The operator's own function: a call through the dispatcher, which enters Python twice, takes 50 us longer."""
    yield Lowering(training_layer(), lambda builder, *args: CallInstead(_run, "a recurrent layer of oneDNN"))


def use_fused_layers(module: object, ctx: Services) -> object:
    """Pass over the captured graph: calls of `torch.lstm` are redirected to `lstm`, those of `torch.gru` to `gru` where
    the back end has loops for it."""
    if isinstance(module, fx.GraphModule):
        dtypes = tuple(ctx.recurrent("cpu"))
        for node in module.graph.nodes:
            # The forms for packed sequences have the batch sizes as second argument.
            if node.target in TARGETS and isinstance(node.args[1], (tuple, list)):
                node.target = lstm
            elif dtypes and node.target in GRU_TARGETS and isinstance(node.args[2], (tuple, list)):
                node.target = gru
            else:
                continue
            last = {"last_step": True} if _only_last_step_is_read(node) else {}
            node.kwargs = last | ({"loops": dtypes} if dtypes else {})
        module.recompile()
    return module


def _only_last_step_is_read(node: fx.Node) -> bool:
    batch_first = node.args[8]
    for part in node.users:
        if part.target is not operator.getitem or (part.args[1] != 0 and part.users):
            return False
        for reader in part.users:
            if reader.target is not operator.getitem:
                return False
            index = reader.args[1]
            index = index if isinstance(index, tuple) else (index,)
            rows, step = (index[:1], index[1:2]) if batch_first else ((slice(None),), index[:1])
            if rows != (slice(None),) or step != (-1,) or type(step[0]) is not int:
                return False
    return True
