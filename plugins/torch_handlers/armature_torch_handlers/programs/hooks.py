"""Hooks on tensors: for tensors of the program, registered when the frame ends; for tensors of the graph, in the graph.

A hook of a tensor that the graph computes is a separate graph, which runs when gradients flow.
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
    """The handle of a registration. The hook is not registered yet, so the handle can't be used."""

    def python_type(self) -> type:
        return RemovableHandle


@handles(torch.Tensor.register_hook)
def register_hook(call: Call, self: Value, hook: Value) -> Value | None:
    """`register_hook` on a tensor that requires gradients, outside of transforms and subgraphs."""
    if (
        not isinstance(self, TracedTensor)
        or self.kind is not None
        or not self.fake.requires_grad
        or call.tracing.stack.atomic_depth
    ):
        return None
    if self.source is not None:
        return later(call, self, hook)
    if self.node is None:
        return None
    try:
        with torch.no_grad():  # as in backward
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
    """`register_post_accumulate_grad_hook` on a leaf of the program."""
    if not isinstance(self, TracedTensor) or self.kind is not None or self.source is None:
        return None
    if call.tracing.stack.atomic_depth:
        return None
    if not (self.fake.requires_grad and self.fake.is_leaf):
        return None
    return later(call, self, hook)


def later(call: Call, tensor: TracedTensor, hook: Value) -> Value | None:
    """A hook on a tensor of the program. Gradients flow after the frame, unless the tensor is changed by then."""
    if tensor.is_written:
        return None
    call.tracing.effects.call(Write(call.fn, (tensor, hook)))
    return HandleValue()


def attach(tensor: torch.Tensor, body: Callable[..., torch.Tensor], used: Sequence[Any]) -> None:
    """Inside a graph: pass a tensor's gradient through another graph, together with the values that this uses."""
    tensor.register_hook(lambda gradient: body(gradient, *used))
