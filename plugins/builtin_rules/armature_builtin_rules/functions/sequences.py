"""Methods of lists, tuples and torch.Size."""

from __future__ import annotations

import collections
from types import MappingProxyType, WrapperDescriptorType
from typing import NoReturn

import torch

from armature.plugin_api import (
    Call,
    DictValue,
    ListValue,
    SequenceValue,
    Tracing,
    TupleValue,
    Value,
    as_index,
    handles,
    method_of,
    native,
)
from armature_builtin_rules.functions.targets import own_methods

COMPARING = {"__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
ORDERED = (list, tuple, collections.deque)
DICTS: tuple[type, ...] = (dict, collections.OrderedDict, MappingProxyType)


@handles(
    *(getattr(kind, name) for kind in ORDERED for name in COMPARING),
    *(getattr(kind, name) for kind in DICTS for name in ("__eq__", "__ne__")),
)
def compared(call: Call, owner: Value, other: Value) -> Value | None:
    """A comparison method: objects of builtin classes only compare with their own kind."""
    method = call.fn
    if not isinstance(method, WrapperDescriptorType) or not isinstance(owner, (SequenceValue, DictValue)):
        return None
    kind = next((kind for kind in (*ORDERED, dict) if issubclass(method.__objclass__, kind)), None)
    if kind is not None and not issubclass(other.python_type(), kind):
        return call.constant(NotImplemented)
    return call.tracing.python.compare(COMPARING[method.__name__], owner, other)


@method_of(SequenceValue, list.index, tuple.index, collections.deque.index)
def index(tracer: Tracing, self: SequenceValue, item: Value, *bounds: Value) -> Value:
    """The position of the first equal item."""
    first, last, *_ = (*(as_index(tracer, bound) for bound in bounds), None, None)
    start, stop, _ = slice(first or 0, last).indices(len(self.items))
    for position in range(start, stop):
        if tracer.python.same_or_equal(self.items[position], item):
            return tracer.constant(position)
    if isinstance(self, TupleValue):
        tracer.raise_error(ValueError, "tuple.index(x): x not in tuple")
    raise_not_found(tracer, self, item)


def raise_not_found(tracer: Tracing, sequence: SequenceValue, item: Value) -> NoReturn:
    """Raise the program's ValueError for an item that a list or deque does not contain."""
    ending = tracer.constant(f" is not in {sequence.python_type().__name__}")
    parts = TupleValue([tracer.python.builtin(repr, item), ending])
    tracer.raise_value(ValueError, (tracer.python.builtin(str.join, tracer.constant(""), parts),))


@method_of(SequenceValue, list.count, tuple.count, collections.deque.count)
def count(tracer: Tracing, self: SequenceValue, item: Value) -> Value:
    """The number of equal items."""
    return tracer.constant(sum(tracer.python.same_or_equal(other, item) for other in self.items))


def of_its_class(method: object, owner: Value) -> SequenceValue | None:
    """The sequence that a method is called on. torch.Size has the methods of tuples."""
    of_tuple = isinstance(method, WrapperDescriptorType) and method.__objclass__ is tuple
    if of_tuple and isinstance(owner, TupleValue) and owner.kind is torch.Size:
        return TupleValue(owner.items)
    return owner if isinstance(owner, SequenceValue) else None


@handles(list.__add__, tuple.__add__, collections.deque.__add__, *own_methods("__add__", torch.Size))
def joined(call: Call, owner: Value, other: Value) -> Value | None:
    """`owner + other`, by the owner's method only."""
    left, right = of_its_class(call.fn, owner), native(other)
    if left is None:
        return None
    kind = left.python_type()
    alike = kind in (torch.Size, collections.deque) or right.python_type() is torch.Size
    if not (right.python_type() is kind if alike else isinstance(right, SequenceValue)):
        call.graph_break("sequence-arithmetic", operation="+", type=other.describe())
    return call.tracing.python.operate("add", left, right)


@handles(
    *(getattr(kind, name) for kind in ORDERED for name in ("__mul__", "__rmul__")),
    *own_methods("__mul__", torch.Size),
    *own_methods("__rmul__", torch.Size),
)
def repeated(call: Call, owner: Value, count: Value) -> Value | None:
    """`owner * count`."""
    sequence = of_its_class(call.fn, owner)
    if sequence is None:
        return None
    times = call.tracing.python.index(count)
    if not issubclass(times.python_type(), int):
        call.graph_break("sequence-arithmetic", operation="*", type=count.describe())
    return call.tracing.python.operate("mul", sequence, times)


@method_of(TupleValue, torch.Size.numel)
def numel(tracer: Tracing, self: TupleValue) -> Value:
    """The product of the sizes."""
    total: Value = tracer.constant(1)
    for item in self.items:
        total = tracer.python.operate("mul", total, item)
    return total


@method_of(ListValue, list.append)
def append(tracer: Tracing, self: ListValue, item: Value) -> None:
    """Append an item."""
    tracer.mutate(self)
    self.known_items.append(item)


@method_of(ListValue, list.extend)
def extend(tracer: Tracing, self: ListValue, more: Value) -> None:
    """Append all items of an iterable. Producing them may inspect the list, or raise."""
    if more.plain_items:
        added = list(tracer.python.collect_items(more))
        tracer.mutate(self)
        self.known_items.extend(added)
        return
    for item in tracer.python.collect_items(more):
        append(tracer, self, item)


@method_of(ListValue, list.__iadd__)
def extend_in_place(tracer: Tracing, self: ListValue, more: Value) -> Value:
    """`self += more`."""
    extend(tracer, self, more)
    return self


@method_of(ListValue, list.insert)
def insert(tracer: Tracing, self: ListValue, position: Value, item: Value) -> None:
    """Insert an item before a position."""
    at = as_index(tracer, position)
    tracer.mutate(self)
    self.items.insert(at, item)


@method_of(ListValue, list.pop)
def pop(tracer: Tracing, self: ListValue, position: Value | None = None) -> Value:
    """Remove and return the item at a position, by default the last."""
    at = -1 if position is None else as_index(tracer, position)
    tracer.mutate(self)
    try:
        return self.items.pop(at)
    except IndexError as error:
        tracer.raise_real(error)


@method_of(ListValue, list.remove)
def remove(tracer: Tracing, self: ListValue, item: Value) -> None:
    """Remove the first equal item."""
    for position, other in enumerate(self.items):
        if tracer.python.same_or_equal(other, item):
            tracer.mutate(self)
            del self.items[position]
            return
    tracer.raise_error(ValueError, "list.remove(x): x not in list")


@method_of(ListValue, list.clear)
def clear(tracer: Tracing, self: ListValue) -> None:
    """Remove all items."""
    tracer.mutate(self)
    self.items.clear()


@method_of(ListValue, list.reverse)
def reverse(tracer: Tracing, self: ListValue) -> None:
    """Reverse the items."""
    tracer.mutate(self)
    self.items.reverse()


@method_of(ListValue, list.copy)
def copy(tracer: Tracing, self: ListValue) -> Value:
    """Another list with the same items."""
    return ListValue(list(self.items))


@method_of(ListValue, list.__init__)
def initialise(tracer: Tracing, self: ListValue, *items: Value) -> None:
    """Fill the list, or an object of a derived class, as `list.__init__` does."""
    clear(tracer, self)
    for more in items:
        extend(tracer, self, more)
