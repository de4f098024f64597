"""`backward(inputs=...)`: what `torch.autograd.grad` gives is added to the gradients of the inputs.

Without inputs, only autograd's engine knows which tensors get a gradient.
"""

from __future__ import annotations

import torch

from armature.plugin_api import AttrSource, Call, TracedTensor, Tracing, Value, handles
from armature_torch_handlers.creation import PLAIN
from armature_torch_handlers.programs.transforms import each, listed

HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


@handles(torch.Tensor.backward)
def backward(
    call: Call,
    self: Value,
    gradient: Value | None = None,
    retain_graph: Value | None = None,
    create_graph: Value | None = None,
    inputs: Value | None = None,
) -> Value | None:
    """`x.backward(inputs=...)` for leaves of the program; None for others, and where the gradient of `x` is given: the
    engine may make that tensor the gradient of a leaf."""
    tracer = call.tracing
    wanted = [] if inputs is None else each(listed(call, inputs))
    plain = all(value is None or (value.is_constant and not value.as_constant()) for value in (gradient, create_graph))
    if not plain or not wanted or tracer.stack.atomic_depth or tracer.overrides.present or in_processes(tracer):
        return None
    if len(set(wanted)) < len(wanted) or not all(is_leaf(tracer, one) for one in wanted):
        return None
    return call.polyfill(add_gradients, self, retain_graph or call.constant(None), *wanted)


def add_gradients(output: torch.Tensor, retain_graph: bool | None, *inputs: torch.Tensor) -> None:
    """What the engine does, for leaves without hooks. Each has memory of its own, laid out like the leaf."""
    found = torch.autograd.grad(output, inputs, None, retain_graph, allow_unused=True)
    with torch.no_grad():
        for leaf, gradient in zip(inputs, found):
            if gradient is None:
                continue
            if leaf.grad is None:
                leaf.grad = torch.empty_like(leaf).copy_(gradient)
            else:
                leaf.grad.add_(gradient)


def is_leaf(tracer: Tracing, one: Value) -> bool:
    """Whether it is a dense leaf of the program that requires gradients and has no hooks; guarded."""
    if not isinstance(one, TracedTensor) or one.real is None or one.source is None or one.python_type() not in PLAIN:
        return False
    real = one.real
    if not (real.is_leaf and real.requires_grad and real.layout is torch.strided) or one.fake.grad_fn is not None:
        return False
    if not torch.ops.aten.is_non_overlapping_and_dense(real) or any(getattr(real, name) for name in HOOKS):
        return False
    one.guard_autograd(tracer)
    for name in HOOKS:
        tracer.guards.equal(AttrSource(one.source, name), getattr(real, name))
    return True


def in_processes(tracer: Tracing) -> bool:
    """Whether there are several processes: data parallelism has hooks that can't be seen; guarded."""
    started = torch.distributed.is_available() and torch.distributed.is_initialized()
    if torch.distributed.is_available():
        tracer.guards.answers(torch.distributed.is_initialized, (), {}, started)
    return started
