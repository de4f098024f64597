"""Changes of what a tensor is: its memory, whether and how autograd follows it.

They stand in the graph, among the operators, and are made on the fakes too, which so tell what the tensor is from then
on. A functional graph would lose them: one that begins or ends to collect gradients in a tensor is done between pieces
that are compiled (`graph/pieces.py`), and a graph with one that changes memory runs operator by operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from armature.torch_abi.altering import is_leaf, is_parameter, is_view
from armature.torch_abi.fake import of_transform
from armature.trace.break_ids import STATE_METHOD, STATE_METHODS
from armature.trace.values.base import Value

if TYPE_CHECKING:
    from armature.trace.values.base import Tracing
    from armature.trace.values.graph_tensor import GraphTensor

AS_CAPTURED = "as_captured"  # in the meta of a node that a functional graph would not have
COLLECTING = frozenset({"requires_grad_", "retain_grad"})  # of what they do, a tensor's memory and history know nothing
APART = "apart"  # in that of one that is done between the pieces of a functional graph
LEAF_VIEW = "leaf_view"  # in that of a view, made without gradients, of a tensor that wants some


def mark_leaf(result: torch.Tensor, node: fx.Node) -> None:
    """Told of a tensor that a node makes: one that collects gradients from its start is of eager mode only, and so is
    a parameter. A view made without gradients, of a tensor that wants some, is only where it leaves the graph."""
    leaf = result.requires_grad and is_leaf(result) and not of_transform(result)
    if leaf and is_view(result):
        node.meta[LEAF_VIEW] = True
    elif leaf or is_parameter(result):
        node.meta[APART] = True


def alter_tensor(tracer: Tracing, tensor: GraphTensor, fn: Callable[..., Any] | str, *args: Value) -> Value:
    """Put a call in the graph that changes what a tensor is. What it was is set back if the graph raises."""
    if tracer.atomic_depth or tracer.overrides.present or not tensor.is_plain or tensor.fake.is_inference():
        name = fn if isinstance(fn, str) else fn.__name__
        tracer.graph_break(STATE_METHODS.get(name, STATE_METHOD), function=f"Tensor.{name}")
    tensor.as_argument(tracer)
    tracer.mutates = True
    tracer.effects.alter(tensor)
    result = tracer.graph_call(fn, (tensor, *args), {})
    next(iter(reversed(tracer.graph.nodes))).meta[APART if fn in COLLECTING else AS_CAPTURED] = True
    return result
