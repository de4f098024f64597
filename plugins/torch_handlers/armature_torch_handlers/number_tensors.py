"""0-d tensors passed where torch needs a number: `x[n]`, `torch.arange(n)`, `torch.add(x, y, alpha=n)`.

torch reads the number from such a tensor. If it is a CPU tensor that the frame receives, the compiled code can read it
before the graph. To the graph the number is then like an int of the program: a constant at first, and a symbol once it
changes. If the tensor depends on constants only, the number is a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs
import torch

from armature.plugin_api import (
    Call,
    CallSource,
    ConstantValue,
    GraphBreak,
    ListValue,
    SliceValue,
    TracedTensor,
    Tracing,
    TupleValue,
    Value,
    handles,
    number_asked,
)
from armature_torch_handlers.known_numbers import number_of as number_of_known
from armature_torch_handlers.known_numbers import was_written

WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64)


def number_of(tensor: torch.Tensor) -> int:
    """The number in an int tensor."""
    return int(tensor)


def with_numbers(tracing: Tracing, value: Value, asked: Value | None = None) -> Value:
    """Replace such tensors, or only the one `asked` for its number: the value itself, or members of a tuple, list or
    slice."""
    if isinstance(value, SliceValue):
        start, stop, step = (with_numbers(tracing, part, asked) for part in value.parts)
        return value if same((start, stop, step), value.parts) else attrs.evolve(value, parts=(start, stop, step))
    if isinstance(value, ListValue) or (isinstance(value, TupleValue) and value.kind is tuple):
        items = [with_numbers(tracing, item, asked) for item in value.items]
        return value if same(items, value.items) else value.like(items)
    if not isinstance(value, TracedTensor) or asked not in (None, value):
        return value
    if value.source is None and asked is not None:
        return number_of_known(tracing, value) or value
    return read(tracing, value)


def same(new: Iterable[Value], old: Iterable[Value]) -> bool:
    """Whether nothing was replaced."""
    return all(one is other for one, other in zip(new, old, strict=True))


def read(tracing: Tracing, value: TracedTensor) -> Value:
    """The number in a one-element tensor if it is known before the graph; else the tensor."""
    tensor = value.real
    if tensor is None or tensor.dim():
        return value
    return read_by(tracing, value, number_of, "{}.item()") or value


def read_by(
    tracing: Tracing, value: TracedTensor, number_of: Callable[[torch.Tensor], int], words: str
) -> Value | None:
    """An int that a function computes from an int tensor of the program before the graph; None if that can't be done.
    words: the function as an expression."""
    tensor, source = value.real, value.source
    if type(tensor) is not torch.Tensor or source is None or tensor.dtype not in WHOLE:
        return None
    # If it was written to, or passes through a `__torch_function__`, its number may have changed.
    if tensor.device.type != "cpu" or tracing.overrides.present or may_have_changed(tracing, value):
        return None
    number = tracing.fakes.run_real(number_of, tensor)
    place = CallSource(source, number_of, words)
    if tracing.sizes.changes(number, place):
        tracing.sizes.contents[place] = None
        return tracing.sizes.of_program(tracing, number, place)
    tracing.guards.equal(place, number)
    return ConstantValue(number, source=place)


def may_have_changed(tracing: Tracing, value: TracedTensor) -> bool:
    """Whether the graph has written to the tensor's memory, under whatever name, or made it another tensor."""
    if not tracing.recorder.mutates:
        return value in tracing.effects.altered
    place = memory_of(value.real)
    near = [one for one in tracing.objects.by_fake.values() if one is value or meet(memory_of(one.real), place)]
    return any(was_written(tracing, one) for one in near)


def memory_of(tensor: torch.Tensor | None) -> range:
    """The addresses of the storage of a tensor of the program, which that of an array may contain."""
    if tensor is None or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return range(0)
    storage = tensor.untyped_storage()
    return range(storage.data_ptr(), storage.data_ptr() + storage.nbytes())


def meet(one: range, other: range) -> bool:
    """Whether two ranges of addresses overlap."""
    return max(one.start, other.start) < min(one.stop, other.stop)


INDEXING = ("getitem", "setitem", "__getitem__", "__setitem__")


@handles(number_asked)
def asked_for_number(call: Call, tensor: Value, *args: Value, **kwargs: Value) -> Value | None:
    """Repeat the call with the number of the tensor whose number torch reads; None if it is not known, or if the call
    refuses a number."""
    tracing, name = call.tracing, getattr(call.fn, "__name__", "")
    is_method = getattr(torch.Tensor, name, None) is call.fn
    fn = name if is_method else call.fn
    if name in INDEXING and isinstance(args[1], ListValue):  # torch takes one that holds tensors for a tuple
        args = (args[0], TupleValue(args[1].items), *args[2:])
    relied_on = dict(tracing.guards.records)
    rest = [with_numbers(tracing, arg, tensor) for arg in args[1:]]
    named = {key: arg if key == "out" else with_numbers(tracing, arg, tensor) for key, arg in kwargs.items()}
    first = list(args[:1])
    if same((*rest, *named.values()), (*args[1:], *kwargs.values())):
        first = [arg if is_method else with_numbers(tracing, arg, tensor) for arg in first]
        if same(first, args[:1]):
            return None
    try:
        return call.graph_call(fn, *first, *rest, **named)
    except GraphBreak:  # the number is not used, so no guard is needed
        tracing.guards.records = relied_on
        return None
