"""0-d tensors passed where torch needs a number: `x[n]`, `x[:, :n]`, `torch.arange(n)`, `x.expand(n, 4)`.

torch reads the number from such a tensor. If it is a CPU tensor that the frame receives, the compiled code can read it
before the graph. To the graph the number is then like an int of the program: a constant at first, and a symbol once it
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs
import torch
import torch.nn.functional as F

from armature.plugin_api import (
    Args,
    Call,
    CallSource,
    ConstantValue,
    Kwargs,
    ListValue,
    SliceValue,
    TracedTensor,
    Tracing,
    TupleValue,
    Value,
    handles,
)

# Functions for which all arguments are numbers; functions whose arguments after the first are; and methods.
NEW = (
    torch.arange, torch.empty, torch.eye, torch.full, torch.ones, torch.rand, torch.randint, torch.randn,
    torch.randperm, torch.zeros,
)  # fmt: skip
OF_TENSORS = (
    torch.chunk, torch.diagonal, torch.narrow, torch.roll, torch.select, torch.split, torch.tile, torch.topk,
    torch.tril, torch.triu, torch.unflatten, F.one_hot, F.pad,
)  # fmt: skip
METHODS = tuple(
    getattr(torch.Tensor, name)
    for name in (
        "chunk", "diagonal", "expand", "narrow", "new_empty", "new_full", "new_ones", "new_zeros", "repeat", "reshape",
        "roll", "select", "split", "tile", "topk", "tril", "triu", "unflatten", "view",
    )
)  # fmt: skip
WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64)


def number_of(tensor: torch.Tensor) -> int:
    """The number in an int tensor."""
    return int(tensor)


def with_numbers(tracing: Tracing, value: Value) -> Value:
    """Replace such tensors by numbers: the value itself, or members of a tuple, list or slice."""
    if isinstance(value, SliceValue):
        start, stop, step = (with_numbers(tracing, part) for part in value.parts)
        return value if same((start, stop, step), value.parts) else attrs.evolve(value, parts=(start, stop, step))
    if isinstance(value, ListValue) or (isinstance(value, TupleValue) and value.kind is tuple):
        items = [with_numbers(tracing, item) for item in value.items]
        return value if same(items, value.items) else value.like(items)
    return read(tracing, value) if isinstance(value, TracedTensor) else value


def same(new: Iterable[Value], old: Iterable[Value]) -> bool:
    """Whether nothing was replaced."""
    return all(one is other for one, other in zip(new, old, strict=True))


def read(tracing: Tracing, value: TracedTensor) -> Value:
    """The number in a one-element tensor if it is known before the graph; else the tensor."""
    tensor, source = value.real, value.source
    if type(tensor) is not torch.Tensor or source is None or tensor.dtype not in WHOLE or tensor.dim():
        return value
    # If it was written to, or passes through a `__torch_function__`, its number may have changed.
    if tensor.device.type != "cpu" or tracing.recorder.mutates or tracing.overrides.present:
        return value
    number = tracing.fakes.run_real(number_of, tensor)
    place = CallSource(source, number_of, "{}.item()")
    if tracing.sizes.changes(number, place):
        return tracing.sizes.of_program(tracing, number, place)
    tracing.guards.equal(place, number)
    return ConstantValue(number, source=place)


def called(call: Call, fn: Callable[..., Any] | str, args: Args, kwargs: Kwargs, first: int) -> Value | None:
    """The call with such tensors replaced by numbers among the arguments from `first` on; None if there are none."""
    given = (*args[:first], *(with_numbers(call.tracing, arg) for arg in args[first:]))
    named = {name: arg if name == "out" else with_numbers(call.tracing, arg) for name, arg in kwargs.items()}
    if same((*given, *named.values()), (*args, *kwargs.values())):
        return None
    return call.graph_call(fn, *given, **named)


@handles(*NEW)
def create(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """`torch.zeros(n, 2)`."""
    return called(call, call.fn, args, kwargs, 0)


@handles(*OF_TENSORS)
def of_tensor(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """`torch.narrow(x, 0, 0, n)`."""
    return called(call, call.fn, args, kwargs, 1)


@handles(*METHODS)
def method(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """`x.narrow(0, 0, n)`."""
    return called(call, call.fn.__name__, args, kwargs, 1)
