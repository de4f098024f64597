"""Python's containers: making them, their length, slices and ranges."""

from __future__ import annotations

import torch

from armature.plugin_api import (
    Call,
    ListValue,
    RangeValue,
    SliceValue,
    TracedTensor,
    Tracing,
    TupleValue,
    Value,
    handles,
    method_of,
)


@handles(list)
def make_list(call: Call, items: Value | None = None) -> Value:
    """A new list."""
    return ListValue([] if items is None else list(call.tracing.python.collect_items(items)))


@handles(tuple)
def make_tuple(call: Call, items: Value | None = None) -> Value:
    """A tuple; a tuple is returned unchanged."""
    if isinstance(items, TupleValue) and items.kind is tuple:
        return items
    return TupleValue([] if items is None else list(call.tracing.python.collect_items(items)))


@handles(torch.Size)
def make_size(call: Call, items: Value | None = None) -> Value:
    """torch.Size of ints."""
    sizes = [] if items is None else list(call.tracing.python.collect_items(items))
    if not all(issubclass(size.python_type(), int) for size in sizes):
        call.graph_break("size-of-no-ints")
    return TupleValue(sizes, torch.Size)


@method_of(SliceValue, slice.indices)
def bounds(tracer: Tracing, self: SliceValue, length: Value) -> Value:
    """The start, stop and step of a slice in a sequence of the given length."""
    try:
        return tracer.as_value(self.as_constant().indices(length.as_constant()))
    except (TypeError, ValueError) as error:
        tracer.raise_real(error)


@handles(slice)
def make_slice(call: Call, first: Value, second: Value | None = None, step: Value | None = None, /) -> Value:
    """A slice of `start, stop, step`, or of `stop` alone."""
    none = call.constant(None)
    if second is None:
        return SliceValue((none, first, none))
    return SliceValue((first, second, none if step is None else step))


@handles(range)
def make_range(call: Call, *bounds: Value) -> Value:
    """A range whose bounds are known while tracing."""
    try:
        given = [call.tracing.python.index(bound) for bound in bounds]
        if any(bound.is_tensor for bound in given):
            call.graph_break("range-of-tensor")
        return RangeValue(range(*(bound.as_constant() for bound in given)))
    except (TypeError, ValueError) as error:
        call.tracing.raise_real(error)


@handles(range.index, range.count, range.__contains__)
def of_range(call: Call, numbers: Value, wanted: Value) -> Value | None:
    """Computed now, because a range is completely known."""
    return call.fold(call.fn, numbers.value, wanted.as_constant()) if isinstance(numbers, RangeValue) else None


@handles(len)
def length(call: Call, obj: Value) -> Value:
    """For a tensor, its first size, which may be a symbol."""
    if isinstance(obj, TracedTensor) and obj.fake.shape and not call.tracing.overrides.present:
        return call.new_value(obj.fake.shape[0])
    return call.constant(obj.length(call.tracing))
