"""Tensors made from Python data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch

from armature.plugin_api import (
    Call,
    TracedTensor,
    TupleValue,
    Value,
    existing,
    handles,
    number_now,
)
from armature_torch_handlers.arrays import ArrayValue, from_numpy, tensor_of
from armature_torch_handlers.factors import with_factor
from armature_torch_handlers.lists import of_tensors, varies
from armature_torch_handlers.numpy_numbers import has_bools, number_of, tensor_of_scalars, with_constants

PLAIN = (torch.Tensor, torch.nn.Parameter)


@handles(torch.tensor)
def tensor(call: Call, data: Value, **options: Value) -> Value | None:
    """`torch.tensor(data)`. Constants are embedded, a tensor is copied, tensors in lists are stacked."""
    if data.is_tensor:
        return copy(call, data, options)
    of_array = tensor_of(call, data, options)
    if of_array is not None:
        return of_array
    made = tensor_of_scalars(call, data, options)
    return of_tensors(call, data, options) if made is None else made


@handles(torch.as_tensor, torch.asarray)
def as_tensor(call: Call, data: Value, **options: Value) -> Value | None:
    """`torch.as_tensor(array)`: shares memory if dtype and device stay the same; for a list it is `torch.tensor`."""
    if isinstance(data, ArrayValue) and data.is_scalar:
        return tensor_of(call, data, options)
    if not isinstance(data, ArrayValue):
        made = tensor_of_scalars(call, data, options)
        return of_tensors(call, data, options) if made is None else made
    shared = from_numpy(call, data)
    if set(options) - {"dtype", "device"}:
        return None
    return call.graph_call("to", shared, **options) if options and shared is not None else shared


def copy(call: Call, data: Value, options: dict[str, Value]) -> Value | None:
    """A detached copy."""
    options = dict(options)
    wanted = options.pop("requires_grad", None)
    if set(options) - {"dtype", "device"}:
        return None
    result = call.graph_call("clone", call.graph_call("detach", data))
    made = call.graph_call("to", result, **options) if options else result
    if wanted is None:
        return made
    return made.get_attribute(call.tracing, "requires_grad_").call(call.tracing, (wanted,), {})


@handles(torch.Tensor.new_tensor)
def new_tensor(call: Call, self: Value, data: Value, **options: Value) -> Value | None:
    """`tensor.new_tensor(data)`, if numbers in `data` vary: `torch.tensor(data)` with the tensor's dtype and device. A
    bool of numpy is one of Python, but tensors of ints refuse it."""
    if not isinstance(self, TracedTensor) or data.is_tensor:
        return None
    on = {"dtype": call.constant(self.dtype), "device": call.constant(self.device)}
    given = {name: value for name, value in options.items() if not value.is_constant or value.as_constant() is not None}
    made = of_tensors(call, number_of(data), on | given)
    takes_bools = (self.dtype.is_floating_point or self.dtype is torch.bool) and "dtype" not in given
    if made is not None or not takes_bools or not has_bools(data):
        return made
    return call.graph_call("new_tensor", self, with_constants(data), **options)


@handles(torch.nn.Parameter)
def parameter(call: Call, data: Value | None = None, requires_grad: Value | None = None) -> Value | None:
    """A parameter made by the graph, which then runs uncompiled; not within a subgraph."""
    wanted = call.constant(True) if requires_grad is None else requires_grad
    made_of = call.graph_call(torch.empty, call.constant(0)) if data is None else data
    if made_of.python_type() not in PLAIN or not wanted.is_constant or call.tracing.stack.atomic_depth:
        call.graph_break("creates-parameter")
    call.tracing.recorder.mutates = True  # it shares a version counter with its source
    return call.graph_call(torch.nn.Parameter, made_of, wanted)


@handles(*existing("torch.nn.Buffer"))
def buffer(call: Call, data: Value | None = None, *, persistent: Value | None = None) -> Value | None:
    """A tensor over the same memory, with the marks that modules check."""
    made_of = call.graph_call(torch.empty, call.constant(0)) if data is None else data
    plain = isinstance(made_of, TracedTensor) and made_of.python_type() in PLAIN and not made_of.fake.requires_grad
    if not plain or call.tracing.stack.atomic_depth or call.tracing.overrides.present:
        call.graph_break("creates-buffer")
    call.tracing.recorder.mutates = True  # it shares a version counter with its source
    made = call.graph_call(torch.ops.aten.alias.default, call.graph_call("detach", made_of))
    made.set_attribute(call.tracing, "persistent", call.constant(True) if persistent is None else persistent)
    made.set_attribute(call.tracing, "_is_buffer", call.constant(True))
    return made


@handles(torch.sub, torch.subtract, torch.Tensor.sub, torch.Tensor.subtract)
def subtraction(call: Call, self: Value, other: Value, *, alpha: Value | None = None) -> Value | None:
    """`torch.sub(x, y, alpha=number)` with a float that varies: what the kernels compute, `x + -number * y`. torch's
    fakes ask whether the number is 1."""
    scaled = with_factor(call, self, other, alpha)
    if scaled is not None:
        return scaled
    floats = all(isinstance(side, TracedTensor) and side.dtype.is_floating_point for side in (self, other))
    if not floats or alpha is None or alpha.is_constant or alpha.python_type() is not float:
        return None
    return call.graph_call(torch.add, self, other, alpha=call.tracing.python.operate_unary("neg", alpha))


@handles(torch.rsub)
def reversed_subtraction(call: Call, self: Value, other: Value, *, alpha: Value | None = None) -> Value | None:
    """`torch.rsub(x, y, alpha=number)` likewise."""
    return subtraction(call, other, self, alpha=alpha)


LEGACY: dict[Callable[..., object], torch.dtype] = {
    kind: kind.dtype
    for name in ("Float", "Double", "Half", "Long", "Int", "Short", "Char", "Byte")
    for kind in existing(f"torch.{name}Tensor")
}


@handles(torch.Tensor, *LEGACY)
def tensor_class(call: Call, *args: Value) -> Value | None:
    """A tensor class called with sizes or constants, or `torch.Tensor` with a CPU tensor."""
    if call.tracing.overrides.present:
        return None
    data = args[0] if len(args) == 1 else None
    if isinstance(data, TracedTensor):
        plain = call.fn is torch.Tensor and data.device.type == "cpu" and data.python_type() in PLAIN
        return call.graph_call(torch.ops.aten.alias.default, data) if plain else None
    dtype = torch.get_default_dtype() if call.fn is torch.Tensor else LEGACY[call.fn]
    options = {"dtype": call.constant(dtype), "device": call.constant(torch.device("cpu"))}
    if data is not None and data.python_type() is list and data.as_constant():
        return call.graph_call(torch.tensor, data, **options)
    if args and all(value.is_constant and type(value.as_constant()) is int for value in args):
        return call.graph_call(torch.empty, *args, **options)
    return None


@handles(*existing("torch.frombuffer", "torch.from_dlpack", "torch.from_file"))
def foreign_memory(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """Break the graph at memory owned by another library."""
    call.graph_break("foreign-memory", operation=f"torch.{call.fn.__name__}")


@handles(torch.Tensor.new)
def new(call: Call, self: Value, *args: Value, device: Value | None = None) -> Value | None:
    """`tensor.new(...)`: for sizes, uninitialised memory; for data, a tensor of its dtype; for a tensor, an alias."""
    on = {} if device is None else {"device": device}
    if len(args) == 1 and args[0].python_type() in (list, tuple):
        return call.graph_call("new_tensor", self, args[0], **on)
    if len(args) == 1 and args[0].python_type() is torch.Size:
        return call.graph_call("new_empty", self, args[0], **on)
    if len(args) == 1 and isinstance(args[0], TracedTensor) and not on and _alike(self, args[0]):
        return call.graph_call(torch.ops.aten.alias.default, args[0])
    if all(arg.python_type() is int for arg in args):
        sizes = args or (call.constant(0),)
        return call.graph_call("new_empty", self, TupleValue(list(sizes)), **on)
    call.graph_break("tensor-new")


def _alike(tensor: Value, other: TracedTensor) -> bool:
    """Whether both are plain and have the same dtype and device; torch raises an error otherwise."""
    if not isinstance(tensor, TracedTensor) or not all(one.python_type() in PLAIN for one in (tensor, other)):
        return False
    return (tensor.dtype, tensor.device) == (other.dtype, other.device)


@handles(*existing("torch._shape_as_tensor"))
def shape_as_tensor(call: Call, self: Value) -> Value | None:
    """The sizes as a tensor; a fake tensor can't hold their values."""
    if not isinstance(self, TracedTensor):
        return None
    sizes = call.tracing.as_value(list).call(call.tracing, (self.get_attribute(call.tracing, "shape"),), {})
    options = {"dtype": call.constant(torch.int64), "device": call.constant(torch.device("cpu"))}
    return call.tracing.as_value(torch.tensor).call(call.tracing, (sizes,), options)


# The tuples that operators return, and how many items they have; None: some attributes are no items.
RESULTS: dict[Callable[..., object], int | None] = {
    kind: kind.n_sequence_fields if kind.n_sequence_fields == kind.n_fields else None
    for kind in vars(torch.return_types).values()
    if hasattr(kind, "n_sequence_fields")
}


@handles(*RESULTS)
def make_result(call: Call, iterable: Value) -> Value | None:
    """The tuple that an operator returns (torch.return_types.max), made from its items."""
    items = call.tracing.unpack(iterable)
    return TupleValue(items, cast(type, call.fn)) if len(items) == RESULTS[call.fn] else None


@handles(torch.arange)
def arange(call: Call, *args: Value, **options: Value) -> Value | None:
    """`torch.arange(end)` and `torch.arange(start, end)` from an int to a float that varies: the numbers below the next
    int, whose dtype is that of floats."""
    end, python = args[-1] if args else None, call.tracing.python
    start = args[0] if len(args) == 2 else call.constant(0)
    if end is None or len(args) > 2 or {"start", "end", "step", "out"} & options.keys():
        return None
    if not varies(end) or end.python_type() is not float:
        return None
    if not start.is_constant or type(start.as_constant()) is not int:
        return None
    if not python.compare(">=", end, start).truth(call.tracing) or not math.isfinite(number_now(end)):
        return None
    whole = python.builtin(math.ceil, end)
    return call.graph_call(torch.arange, start, whole, **{"dtype": call.constant(torch.get_default_dtype()), **options})
