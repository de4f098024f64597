"""Items of tensors: indices that are numpy arrays, dynamic ints or one-element tensors; writes by a mask that is a
single 0-d bool, whose value torch itself would read; and splits at positions held by a tensor."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch

from armature.plugin_api import Call, ConstantValue, SliceValue, TracedTensor, TupleValue, Value, handles
from armature_torch_handlers.arrays import ArrayValue
from armature_torch_handlers.number_tensors import same, with_numbers

MASK_DTYPES = (torch.bool, torch.uint8)  # torch converts an index of any other dtype to int64
COUNTS = (torch.int8, torch.int16, torch.int32, torch.int64)


@handles(torch.Tensor.__getitem__)
def read(call: Call, self: Value, key: Value) -> Value | None:
    """`x[array]`, `x[k]` with a dynamic int, and `x[n]` with a one-element tensor."""
    index = of_tensors(call, self, key)
    if index is not None:
        return call.graph_call(operator.getitem, self, index)
    return of_numbers(call, self, key)


@handles(torch.Tensor.__setitem__)
def write(call: Call, self: Value, key: Value, value: Value) -> Value | None:
    """`x[array] = value`, `x[n] = value`, `x[:, k] = value` with a dynamic int, and `x[mask] = number`."""
    index = of_tensors(call, self, key)
    if index is None and isinstance(key, TracedTensor) and (number := with_numbers(call.tracing, key)) is not key:
        index = number
    if index is None and isinstance(key, TupleValue) and (items := basic(call, self, key)) is not None:
        self, rest = selected(call, self, items)
        index = call.constant(...) if all(map(is_full_slice, rest)) else TupleValue(rest)
    if index is None:
        return write_all_or_nothing(call, self, key, value)
    call.graph_call(operator.setitem, self, index, value)
    return call.constant(None)


def of_numbers(call: Call, self: Value, key: Value) -> Value | None:
    """An item at positions not all known while tracing."""
    items = basic(call, self, key)
    return None if items is None else at(call, *selected(call, self, items))


def basic(call: Call, self: Value, key: Value) -> list[Value] | None:
    """The parts of an index with positions that are not all known while tracing, with `...` expanded; None for any
    other index."""
    items = key.items if isinstance(key, TupleValue) and key.kind is tuple else [key]
    if not isinstance(self, TracedTensor) or not all(map(may_be_basic, items)):
        return None
    given = [with_numbers(call.tracing, item) for item in items]
    if same(given, items) and not any(item.is_symbolic for item in given):
        return None
    kinds = [item.python_type() for item in given]
    rest = self.fake.dim() - sum(kind in (int, slice) for kind in kinds)
    if any(isinstance(item, TracedTensor) for item in given) or rest < 0 or kinds.count(type(...)) > 1:
        return None
    if type(...) in kinds:
        place = kinds.index(type(...))
        given[place : place + 1] = full_slices(rest)
    return given


def may_be_basic(item: Value) -> bool:
    """Whether the index may select without advanced indexing."""
    one = isinstance(item, TracedTensor) and not item.fake.dim()
    return one or item.python_type() in (int, slice, type(None), type(...))


def selected(call: Call, self: Value, items: Sequence[Value]) -> tuple[Value, list[Value]]:
    """A view of `x` and the index of `x[items]` in it, applied from left to right, as torch does. In an index, torch
    makes a dynamic int a constant; `select` does not."""
    made, before = self, list[Value]()
    for item in items:
        if item.is_symbolic:
            made = call.graph_call("select", at(call, made, before), call.constant(axes(before)), item)
            before = full_slices(axes(before))
        else:
            before.append(item)
    return made, before


def axes(items: Sequence[Value]) -> int:
    """The number of axes that the items of an index result in."""
    return sum(item.python_type() is not int for item in items)


def full_slices(count: int) -> list[Value]:
    """Full slices for this many axes."""
    nothing = ConstantValue(None)
    return [SliceValue((nothing, nothing, nothing)) for _ in range(count)]


def is_full_slice(item: Value) -> bool:
    """Whether it is `:`."""
    return isinstance(item, SliceValue) and all(part.is_constant and part.as_constant() is None for part in item.parts)


def at(call: Call, tensor: Value, items: list[Value]) -> Value:
    """`tensor[items]`."""
    return tensor if all(map(is_full_slice, items)) else call.graph_call(operator.getitem, tensor, TupleValue(items))


def of_tensors(call: Call, self: Value, key: Value) -> Value | None:
    """An index with arrays replaced by tensors, as torch does; None if there are none."""
    if not isinstance(self, TracedTensor) or self.device.type != "cpu":
        return None
    if isinstance(key, ArrayValue):
        # a multi-dimensional one may count as a tuple of rows
        return as_index(call, key) if key.shadow.ndim == 1 else None
    if not isinstance(key, TupleValue) or not any(is_array(item) for item in key.items):
        return None
    items = [as_index(call, item) if isinstance(item, ArrayValue) and is_array(item) else item for item in key.items]
    known = [item for item in items if item is not None]
    return TupleValue(known) if len(known) == len(items) else None


def is_array(value: Value) -> bool:
    """Whether it is an array that is not a scalar."""
    return isinstance(value, ArrayValue) and not value.is_scalar and value.shadow.ndim > 0


def as_index(call: Call, array: ArrayValue) -> Value | None:
    """The tensor for an array; None if torch may not treat it as an index."""
    if array.tensor.dtype in COUNTS:
        return call.graph_call("to", array.tensor, call.constant(torch.int64))
    return array.tensor if array.tensor.dtype in MASK_DTYPES else None


def write_all_or_nothing(call: Call, self: Value, key: Value, value: Value) -> Value | None:
    """`x[mask] = number`: sets every element, or none."""
    if not isinstance(self, TracedTensor) or not isinstance(key, TracedTensor) or not value.is_constant:
        return None
    number = type(value.as_constant()) in (bool, int, float)
    if not number or key.dtype is not torch.bool or key.shape or key.device != self.device:
        return None
    return call.polyfill(write_where, self, key, value)


def write_where(self: torch.Tensor, mask: torch.Tensor, number: float) -> None:
    """The number as a tensor of the target's dtype, cast as in a plain write."""
    self.copy_(torch.where(mask, torch.full((), number, dtype=self.dtype, device=self.device), self))


@handles(torch.tensor_split, torch.Tensor.tensor_split)
def tensor_split(call: Call, self: Value, places: Value | None = None, *args: Value, **kwargs: Value) -> Value | None:
    """A split at positions held by a tensor, whose values torch reads: same as with `places.tolist()`."""
    if not isinstance(self, TracedTensor) or not isinstance(places, TracedTensor) or places.fake.dim() != 1:
        return None
    if places.dtype is not torch.int64 or places.device.type != "cpu":  # torch refuses others
        return None
    numbers = places.get_attribute(call.tracing, "tolist").call(call.tracing, (), {})
    return call.tracing.as_value(call.fn).call(call.tracing, (self, numbers, *args), kwargs)
