"""Changes of a tensor's state: its memory (`x.data = y`, `x.set_(y)`), and whether and how autograd tracks it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from armature.plugin_api import AS_CAPTURED, BETWEEN_PIECES, Call, TracedTensor, Tracing, Value, handles, set_data_
from armature_torch_handlers.tensor_methods import STATE_METHOD, STATE_METHODS

# methods that change neither a tensor's memory nor its history
COLLECTING = frozenset({"requires_grad_", "retain_grad"})


@handles(vars(torch._C.TensorBase)["data"].__set__)
def set_data(call: Call, self: Value, data: Value) -> Value | None:
    """`tensor.data = data`."""
    if not isinstance(self, TracedTensor):
        return None
    if data is self:
        return call.constant(None)
    return set_memory(call, self, set_data_, data, "setting attribute data")


@handles(torch.Tensor.set_)
def set_(call: Call, self: Value, source: Value | None = None) -> Value | None:
    """`tensor.set_(source)` with another tensor."""
    return set_memory(call, self, "set_", source, "Tensor.set_") if isinstance(self, TracedTensor) else None


@handles(vars(torch._C.TensorBase)["requires_grad"].__set__)
def set_requires_grad(call: Call, self: Value, requires_grad: Value) -> Value | None:
    """`tensor.requires_grad = True`."""
    known = requires_grad.is_constant and isinstance(requires_grad.as_constant(), bool)
    return switch_gradient(call, self, requires_grad) if known and isinstance(self, TracedTensor) else None


@handles(torch.Tensor.requires_grad_)
def requires_grad_(call: Call, self: Value, requires_grad: Value | None = None) -> Value | None:
    """`tensor.requires_grad_(requires_grad)`."""
    wanted = call.constant(True) if requires_grad is None else requires_grad
    if not wanted.is_constant or not isinstance(wanted.as_constant(), bool):
        return None
    return switch_gradient(call, self, wanted) if isinstance(self, TracedTensor) else None


def switch_gradient(call: Call, tensor: TracedTensor, wanted: Value) -> Value:
    """Start or stop collecting gradients in a leaf."""
    if wanted.as_constant() is tensor.fake.requires_grad:
        return tensor
    tensor.guard_autograd(call.tracing)
    if not tensor.fake.is_leaf or call.tracing.effects.calls:  # a hook may be waiting for the end of the frame
        call.graph_break("tensor-requires-grad", function="Tensor.requires_grad_")
    return alter_tensor(call.tracing, tensor, "requires_grad_", wanted)


@handles(torch.Tensor.detach_)
def detach_(call: Call, self: Value) -> Value | None:
    """`tensor.detach_()`. If the graph then raised, the history of a tensor of the program would be lost for good."""
    if not isinstance(self, TracedTensor) or (self.real is not None and self.fake.requires_grad):
        return None
    return alter_tensor(call.tracing, self, "detach_")


@handles(torch.Tensor.retain_grad)
def retain_grad(call: Call, self: Value) -> Value | None:
    """`tensor.retain_grad()`, which does nothing for a leaf."""
    if not isinstance(self, TracedTensor):
        return None
    self.guard_autograd(call.tracing)
    if self.fake.is_leaf and self.fake.requires_grad:
        return call.constant(None)
    return None if self.real is not None else alter_tensor(call.tracing, self, "retain_grad")


def set_memory(
    call: Call, tensor: TracedTensor, fn: Callable[..., object] | str, source: Value | None, operation: str
) -> Value:
    """Give a tensor the memory of another."""
    if not isinstance(source, TracedTensor) or not source.is_plain:
        call.graph_break("sets-data", operation=operation)
    symbolic = not (tensor.has_static_shape and source.has_static_shape)
    if form(tensor.fake) != form(source.fake) and (symbolic or "grad" in tensor.written):
        # Sizes of the program's tensors are read after the graph has run, and gradients are set then.
        call.graph_break("sets-data-of-other-size", operation=operation)
    return alter_tensor(call.tracing, tensor, fn, source)


def form(fake: torch.Tensor) -> tuple[object, ...]:
    """Sizes, dtype and device, for comparison. Sizes are compared as texts, because comparing symbols would add a
    guard."""
    return tuple(map(str, fake.shape)), fake.dtype, fake.device


def alter_tensor(tracer: Tracing, tensor: TracedTensor, fn: Callable[..., object] | str, *args: Value) -> Value:
    """Add a call to the graph that changes a tensor's state. The old state is restored if the graph raises."""
    if tracer.stack.atomic_depth or tracer.overrides.present or not tensor.is_plain or tensor.fake.is_inference():
        name = fn if isinstance(fn, str) else fn.__name__
        tracer.graph_break(STATE_METHODS.get(name, STATE_METHOD), function=f"Tensor.{name}")
    tensor.as_argument(tracer)
    tracer.recorder.mutates = True
    tracer.effects.alter(tensor)
    result = tracer.graph.call(fn, (tensor, *args), {})
    next(iter(reversed(tracer.recorder.graph.nodes))).meta[BETWEEN_PIECES if fn in COLLECTING else AS_CAPTURED] = True
    return result
