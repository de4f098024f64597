"""Hooks on tensors: on those of the program, registered when the frame ends; on those of the graph, in the graph.

A hook of a tensor that the graph computes is a graph of its own, which runs when gradients flow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
from torch.utils.hooks import RemovableHandle

from armature.plugin_api import Call, TracedTensor, Value, Write, existing, handles
from armature_torch_handlers.programs.bodies import Like, trace_body
from armature_torch_handlers.programs.subgraphs import NotSeparable, call_graphs


@attrs.define(eq=False)
class HandleValue(Value):
    """What registering gives. The hook is not there yet, so nothing can be asked of it."""

    def python_type(self) -> type:
        return RemovableHandle


@handles(torch.Tensor.register_hook)
def register_hook(call: Call, self: Value, hook: Value) -> Value | None:
    """Of a tensor that needs gradients, outside of transforms and graphs within the graph."""
    if (
        not isinstance(self, TracedTensor)
        or self.kind is not None
        or not self.fake.requires_grad
        or call.tracing.atomic_depth
    ):
        return None
    if self.source is not None:
        return later(call, self, hook)
    if self.node is None:
        return None
    try:
        with torch.no_grad():  # in force while gradients flow
            gradient_like = Like.of(self.fake).without_gradient()
            body = trace_body(call.tracing, hook, [gradient_like], name="hook", single=True, fresh=False)
    except NotSeparable:
        return None
    (gradient,) = body.results
    if not isinstance(gradient, TracedTensor) or gradient.fake.shape != self.fake.shape or gradient.dtype != self.dtype:
        return None
    tensor = self.as_argument(call.tracing)
    call_graphs(call.tracing, attach, [body.module], lambda graph: (tensor, graph, body.free), None)
    return HandleValue()


@handles(*existing("torch.Tensor.register_post_accumulate_grad_hook"))
def register_after_accumulation(call: Call, self: Value, hook: Value) -> Value | None:
    """Of a leaf of the program."""
    if not isinstance(self, TracedTensor) or self.kind is not None or self.source is None or call.tracing.atomic_depth:
        return None
    if not (self.fake.requires_grad and self.fake.is_leaf):
        return None
    return later(call, self, hook)


def later(call: Call, tensor: TracedTensor, hook: Value) -> Value | None:
    """A hook on a tensor of the program: gradients flow after the frame, unless the tensor is another one by then."""
    if tensor.is_written:
        return None
    call.tracing.effects.call(Write(call.fn, (tensor, hook)))
    return HandleValue()


def attach(tensor: torch.Tensor, body: Callable[..., torch.Tensor], used: Sequence[Any]) -> None:
    """In a graph: have a tensor's gradient go through another graph, which is given also what it uses of this one."""
    tensor.register_hook(lambda gradient: body(gradient, *used))
