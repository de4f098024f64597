"""Queries about a tensor that do not depend on its elements: answered by the fake tensor, without a node."""

from __future__ import annotations

import torch

from armature.plugin_api import Call, TracedTensor, Value, existing, handles


@handles(torch.is_tensor, torch.overrides.is_tensor_like)
def is_tensor(call: Call, obj: Value) -> Value | None:
    """Whether it is a tensor; the interpreter handles other objects that behave like one."""
    if obj.is_tensor:
        return call.constant(True)
    if call.fn is torch.is_tensor or not hasattr(obj.python_type(), "__torch_function__"):
        return call.constant(False)
    return None


@handles(torch.numel)
def numel(call: Call, input: Value) -> Value | None:
    """The number of elements, if the shape is static."""
    if not isinstance(input, TracedTensor) or not input.has_static_shape:
        return None
    return call.constant(input.fake.numel())


@handles(
    *existing(
        "torch.is_floating_point",
        "torch.is_complex",
        "torch.is_signed",
        "torch.is_conj",
        "torch.is_neg",
        "torch.is_inference",
        "torch.get_device",
        "torch.is_distributed",
    )
)
def static_fact(call: Call, input: Value) -> Value | None:
    """A fact about dtype, device or flags."""
    if not isinstance(input, TracedTensor):
        return None
    return call.constant(call.fn(input.fake))


@handles(torch.is_same_size)
def is_same_size(call: Call, input: Value, other: Value) -> Value | None:
    """Whether two static shapes are equal."""
    if not isinstance(input, TracedTensor) or not isinstance(other, TracedTensor):
        return None
    if not (input.has_static_shape and other.has_static_shape):
        return None
    return call.constant(input.fake.shape == other.fake.shape)


@handles(torch.result_type)
def result_type(call: Call, tensor1: Value, tensor2: Value) -> Value | None:
    """The dtype of an operation on two tensors or numbers."""
    first, second = fake_or_constant(tensor1), fake_or_constant(tensor2)
    if first is None or second is None:
        return None
    return call.constant(torch.result_type(first, second))


def fake_or_constant(value: Value) -> torch.Tensor | float | None:
    """The fake of a tensor, the number of a constant, None for anything else."""
    if isinstance(value, TracedTensor):
        return value.fake
    return value.as_constant() if value.is_constant else None


@handles(torch.is_nonzero, torch.equal, torch.allclose)
def needs_the_numbers(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """Break the graph: a Python bool computed from a tensor's elements."""
    call.graph_break("compares-tensors", function=f"torch.{call.fn.__name__}")


@handles(torch.is_storage)
def is_storage(call: Call, obj: Value) -> Value:
    """False, because storages do not occur in a graph."""
    return call.constant(issubclass(obj.python_type(), (torch.UntypedStorage, torch.TypedStorage)))
