"""Tensors made from Python data."""

from __future__ import annotations

import torch

from armature.plugin_api import Call, Value, existing, handles
from armature_torch_handlers.arrays import scalar_of, tensor_of
from armature_torch_handlers.lists import of_tensors


@handles(torch.tensor)
def tensor(call: Call, data: Value, **options: Value) -> Value | None:
    """`torch.tensor(data)`. Constants stay as they are, a tensor is copied, tensors in lists are stacked."""
    if data.is_tensor:
        return copy(call, data, options)
    of_array = tensor_of(call, data, options)
    if of_array is not None:
        return of_array
    scalar = scalar_of(call, data, options)
    if scalar is not None:
        return call.tracer.graph_call(call.fn, *scalar)
    return of_tensors(call, data, options)


def copy(call: Call, data: Value, options: dict[str, Value]) -> Value | None:
    """A detached copy; `requires_grad=True` makes a new leaf, which a graph cannot."""
    options = dict(options)
    wanted = options.pop("requires_grad", None)
    if wanted is not None and not (wanted.is_constant and wanted.as_constant() is False):
        call.graph_break("creates-leaf", operation="torch.tensor(..., requires_grad=True)")
    if set(options) - {"dtype", "device"}:
        return None
    result = call.graph_call("clone", call.graph_call("detach", data))
    return call.graph_call("to", result, **options) if options else result


@handles(torch.nn.Parameter, *existing("torch.nn.Buffer"))
def parameter(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """A parameter is a leaf with an identity of its own; made in a graph it would be neither."""
    call.graph_break("creates-leaf", operation=f"torch.nn.{call.fn.__name__}(...)")


@handles(*existing("torch.frombuffer", "torch.from_dlpack", "torch.from_file"))
def foreign_memory(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """Memory that another library owns."""
    call.graph_break("foreign-memory", operation=f"torch.{call.fn.__name__}")
