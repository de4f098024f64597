"""Hooks on tensors: for tensors of the program, registered when the frame ends; for tensors of the graph, in the graph.
Hooks on modules: each gets a number, which the compiled code draws before its graph.

A hook of a tensor that the graph computes is a separate graph, which runs when gradients flow.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from types import ModuleType

import attrs
import torch
from torch import fx
from torch.nn.modules import module as modules
from torch.utils import hooks
from torch.utils.hooks import RemovableHandle

from armature.plugin_api import (
    Call,
    GraphBreak,
    Identity,
    PrecomputedNumber,
    TracedTensor,
    Tracing,
    Value,
    Write,
    change_before_graph,
    existing,
    handles,
)
from armature_torch_handlers.programs.bodies import Body, Like, trace_body
from armature_torch_handlers.programs.subgraphs import NotSeparable, call_graphs

OWN: tuple[ModuleType, ...] = (modules, hooks)


@attrs.define(eq=False)
class HandleValue(Value):
    """The handle of a registration. The hook is not registered yet, so the handle can't be used."""

    def python_type(self) -> type:
        return RemovableHandle


@attrs.define(eq=False)
class HandleNumber(PrecomputedNumber):
    """The number of a hook that the frame registers, its key in torch's tables. It differs from call to call."""

    slots = PrecomputedNumber.slots | {"__hash__"}

    def key(self, tracer: Tracing) -> Hashable:
        if not is_torchs_own(tracer):  # a table of the program may hold an equal number
            return super().key(tracer)
        return Identity(self)


def is_torchs_own(tracer: Tracing) -> bool:
    """Whether the code being traced is that of torch which registers and removes hooks."""
    return any(tracer.stack.frames[-1].namespace is vars(own) for own in OWN)


@handles(RemovableHandle.__init__)
def make_handle(call: Call, self: Value, hooks_dict: Value, *, extra_dict: Value | None = None) -> Value:
    """The handle of a hook on a module. Its number is drawn in the order in which hooks are registered."""
    tracing = call.tracing
    change_before_graph(tracing, tracing.as_value(RemovableHandle), numbers_drawn, set_numbers_drawn)
    count = len(tracing.precalls.calls)
    number = HandleNumber(RemovableHandle.next_id + count, tracing, source=tracing.precalls.add(draw_number, ()))
    others = call.constant(None) if extra_dict is None else extra_dict
    return call.polyfill(fill_handle, self, hooks_dict, number, others)


def draw_number() -> int:
    """The number of the next hook."""
    number = RemovableHandle.next_id
    RemovableHandle.next_id += 1
    return number


def numbers_drawn(handles: type[RemovableHandle]) -> int:
    """How many numbers of hooks have been drawn."""
    return handles.next_id


def set_numbers_drawn(handles: type[RemovableHandle], count: int) -> None:
    """Reset the counter, so that the following numbers are drawn again."""
    handles.next_id = count


def fill_handle(self: RemovableHandle, hooks_dict: object, number: int, extra_dict: object) -> None:
    """What `RemovableHandle.__init__` does."""
    self.hooks_dict_ref = weakref.ref(hooks_dict)
    self.id = number
    self.extra_dict_ref = ()
    if isinstance(extra_dict, dict):
        self.extra_dict_ref = (weakref.ref(extra_dict),)
    elif isinstance(extra_dict, list):
        self.extra_dict_ref = tuple(weakref.ref(one) for one in extra_dict)


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
    body = gradient_body(call.tracing, hook, Like.of(self.fake).without_gradient())
    if body is None:
        return None
    (gradient,) = body.results
    if not isinstance(gradient, TracedTensor) or gradient.fake.shape != self.fake.shape or gradient.dtype != self.dtype:
        return None
    tensor = self.as_argument(call.tracing)
    call_graphs(call.tracing, attach, [body.module], lambda graph: (tensor, graph, body.free), None)
    return HandleValue()


def gradient_body(tracing: Tracing, hook: Value, like: Like) -> Body | None:
    """The graph of a hook. None if there is none, or if it depends on the strides of the gradient, which autograd
    chooses: that of `x.sum()` is one number, expanded."""
    expanded = attrs.evolve(like, stride=(0,) * len(like.stride))
    try:
        with torch.no_grad():  # as in backward
            other = trace_body(tracing, hook, [expanded], name="hook", single=True, fresh=False)
    except (NotSeparable, GraphBreak):
        other = None
    try:
        with torch.no_grad():
            body = trace_body(tracing, hook, [like], name="hook", single=True, fresh=False)
    except NotSeparable:
        return None
    return body if other is not None and calls_of(other) == calls_of(body) and other.free == body.free else None


def calls_of(body: Body) -> list[object]:
    """The nodes of a graph; nodes among their arguments by number."""
    numbers = {node: number for number, node in enumerate(body.module.graph.nodes)}
    found: list[object] = []
    for node in numbers:
        target = node.op if node.op == "placeholder" else node.target
        found.append((target, str(fx.map_arg((node.args, node.kwargs), lambda used: f"%{numbers[used]}"))))
    return found


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


def attach(tensor: torch.Tensor, body: Callable[..., torch.Tensor], used: Sequence[object]) -> None:
    """Inside a graph: pass a tensor's gradient through another graph, together with the values that this uses."""
    tensor.register_hook(lambda gradient: body(gradient, *used))
