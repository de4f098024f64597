"""`flex_attention`: a node of the graph, with graphs of the functions that modify scores and that mask them.

torch's Python code around the operator is traced into. Block masks are made by the program's own calls, which are
traced normally.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from types import CodeType

import torch

from armature.plugin_api import (
    Call,
    GraphBreak,
    TracedTensor,
    TupleValue,
    Value,
    attention_results,
    existing,
    handles,
    item_by_tensors,
)
from armature_torch_handlers.programs.bodies import Body, Like, needs_gradient, trace_body
from armature_torch_handlers.programs.subgraphs import NotSeparable, call_graphs

AROUND = "torch.nn.attention.flex_attention"  # the module of torch's Python function; `import torch` leaves it out
Q_INDICES = 7  # position, in a flattened block mask, of the part needed for gradients


@handles(*existing("torch._higher_order_ops.flex_attention.flex_attention"))
def flex_attention(
    call: Call,
    query: Value,
    key: Value,
    value: Value,
    score_mod: Value,
    block_mask: Value,
    scale: Value,
    options: Value,
) -> Value | None:
    """Attention output, log-sum-exp, and largest scores.

    The operator itself would ignore gradients of what the functions close over. torch's Python function around it
    handles them. So if the operator can't be in the graph, that whole function runs eagerly.
    """
    try:
        return attention(call, (query, key, value), score_mod, block_mask, scale, options)
    except GraphBreak as stop:
        outside = list(itertools.takewhile(lambda location: not is_around(location.code), stop.locations))
        stop.locations = tuple(outside) or stop.locations
        raise


def is_around(code: CodeType) -> bool:
    """Whether code is that of torch's Python function."""
    function = getattr(sys.modules.get(AROUND), "flex_attention", None)
    return function is not None and code == function.__code__


def attention(
    call: Call, tensors: Sequence[Value], score_mod: Value, block_mask: Value, scale: Value, options: Value
) -> Value | None:
    """The call as a node of the graph. Raises GraphBreak."""
    tracer = call.tracing
    query, key, value = tensors
    if not isinstance(query, TracedTensor) or not isinstance(key, TracedTensor) or not isinstance(value, TracedTensor):
        return None
    *blocks, mask_mod = tracer.unpack(block_mask)
    place = Like(dtype=torch.int32, device=query.device)
    number = Like(dtype=query.dtype, device=query.device, requires_grad=query.fake.requires_grad)
    score = body_of(call, score_mod, [number, place, place, place, place], "score")
    mask = body_of(call, mask_mod, [place, place, place, place], "mask")
    learning = needs_gradient(tensors, [score])
    if learning and (needs_gradient((), [mask]) or blocks[Q_INDICES].is_constant):
        call.graph_break("flex-attention-gradient")
    try:
        found = attention_results(
            [one.fake for one in (query, key, value)],
            score.module,
            (*(block.as_fake(tracer) for block in blocks), mask.module),
            scale.as_fake(tracer),
            (score.free_fakes, mask.free_fakes),
        )
    except Exception as error:
        call.graph_break("flex-attention-arguments", message=f"{type(error).__name__}: {error}")
    made = [Like.of(one).result_like(learning and position < 2) for position, one in enumerate(found)]
    given = [one.as_argument(tracer) for one in tensors]
    sparse = [one.as_argument(tracer) for one in blocks]
    rest = (scale.as_argument(tracer), options.as_argument(tracer), score.free, mask.free)
    modules = [score.module, mask.module]
    return TupleValue(
        call_graphs(tracer, call.fn, modules, lambda by, sieve: (*given, by, (*sparse, sieve), *rest), made)
    )


def body_of(call: Call, function: Value, inputs: Sequence[Like], name: str) -> Body:
    """A function of a score and its position, or of a position, as a separate graph."""
    try:
        with call.tracing.fakes.reading_items(item_by_tensors):
            return trace_body(call.tracing, function, inputs, name=name, single=True, fresh=False)
    except NotSeparable as unfit:
        call.graph_break("flex-attention-function", reason=unfit.reason)
