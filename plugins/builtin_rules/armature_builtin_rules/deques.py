"""collections.deque while tracing."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterator
from types import NoneType
from typing import cast

import attrs

from armature.plugin_api import (
    AttrSource,
    Call,
    ItemSource,
    Rebuilding,
    SequenceValue,
    Source,
    Steps,
    Tracing,
    Value,
    ValueType,
    Write,
    handles,
    method_of,
)
from armature_builtin_rules.functions.sequences import raise_not_found


@attrs.define(eq=False)
class DequeValue(SequenceValue):
    """A deque. `limit`: the value of its `maxlen`."""

    limit: Value = attrs.field(kw_only=True)

    slots = SequenceValue.slots | {"__setitem__", "__delitem__"}
    iterators = (type(iter(collections.deque[object]())), type(reversed(collections.deque[object]())))

    def python_type(self) -> type:
        return collections.deque

    def make(self, items: list[object]) -> object:
        return collections.deque(items, cast("int | None", self.limit.as_constant()))

    def like(self, items: list[Value]) -> Value:
        return DequeValue(items, limit=self.limit)

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return self.limit if name == "maxlen" else super().get_attribute(tracer, name)

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        return self._walk(tracer, lambda position: position)

    def backwards(self, tracer: Tracing) -> Iterator[Value]:
        return self._walk(tracer, lambda position: -1 - position)

    def _walk(self, tracer: Tracing, place: Callable[[int], int]) -> Iterator[Value]:
        seen, positions = self.reshaped, itertools.count()

        def step() -> Value:
            if self.reshaped != seen:
                tracer.raise_error(RuntimeError, "deque mutated during iteration")
            position = next(positions)
            if position >= len(self.items):
                raise StopIteration
            return self.items[place(position)]

        return Steps(step)

    def reshape(self, tracer: Tracing) -> None:
        """Record that items are about to be added, removed or moved."""
        tracer.mutate(self)
        self.reshaped += 1

    def _index(self, tracer: Tracing, key: Value) -> int:
        kind = key.python_type()
        if not hasattr(kind, "__index__"):
            tracer.raise_error(TypeError, f"sequence index must be integer, not '{kind.__name__}'")
        position: int = tracer.python.index(key).as_constant()
        return position

    def get_item(self, tracer: Tracing, key: Value) -> Value:
        try:
            found: Value = self.items[self._index(tracer, key)]
            return found
        except IndexError:
            tracer.raise_error(IndexError, "deque index out of range")

    def set_item(self, tracer: Tracing, key: Value, value: Value) -> None:
        tracer.mutate(self)
        try:
            self.items[self._index(tracer, key)] = value
        except IndexError:
            tracer.raise_error(IndexError, "deque index out of range")

    def delete_item(self, tracer: Tracing, key: Value) -> None:
        tracer.mutate(self)
        try:
            del self.items[self._index(tracer, key)]
        except IndexError:
            tracer.raise_error(IndexError, "deque index out of range")
        self.reshaped += 1

    def trim(self, left: bool) -> None:
        """Drop items at one end to satisfy `maxlen`."""
        limit = self.limit.as_constant()
        extra = 0 if limit is None else max(len(self.items) - limit, 0)
        if extra:
            del self.items[slice(0, extra) if left else slice(-extra, None)]

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(collections.deque)
        for item in self.items:
            out.load(item)
        out.build("BUILD_LIST", len(self.items))
        out.load(self.limit)
        out.call(2)

    def writes(self, out: Rebuilding) -> list[Write]:
        if not self.reshaped:  # the program may be iterating over it
            places = map(out.value, range(len(self.items)))
            return [Write(collections.deque.__setitem__, (self, *pair)) for pair in zip(places, self.items)]
        refilled = DequeValue(list(self.items), limit=self.limit)
        return [Write(collections.deque.clear, (self,)), Write(collections.deque.extend, (self, refilled))]


@method_of(DequeValue, collections.deque.append)
def append(tracer: Tracing, self: DequeValue, item: Value) -> None:
    """Add an item at the right end."""
    _extend_by(tracer, self, [item])


@method_of(DequeValue, collections.deque.extend)
def extend(tracer: Tracing, self: DequeValue, items: Value) -> None:
    """Add the items of an iterable at the right end."""
    if items.plain_items:
        _extend_by(tracer, self, tracer.unpack(items))
        return
    for item in items.stream(tracer):
        append(tracer, self, item)


def _extend_by(tracer: Tracing, self: DequeValue, items: list[Value]) -> None:
    if not items:
        return
    self.reshape(tracer)
    self.items.extend(items)
    self.trim(left=True)


@method_of(DequeValue, collections.deque.appendleft)
def append_left(tracer: Tracing, self: DequeValue, item: Value) -> None:
    """Add an item at the left end."""
    self.reshape(tracer)
    self.items.insert(0, item)
    self.trim(left=False)


@method_of(DequeValue, collections.deque.extendleft)
def extend_left(tracer: Tracing, self: DequeValue, items: Value) -> None:
    """Add the items of an iterable at the left end, one after the other."""
    for item in tracer.unpack(items) if items.plain_items else items.stream(tracer):
        append_left(tracer, self, item)


@handles(collections.deque.pop, collections.deque.popleft)
def take(call: Call, self: Value) -> Value | None:
    """Remove and return the item at one end."""
    if not isinstance(self, DequeValue):
        return None
    if not self.items:
        call.tracing.raise_error(IndexError, "pop from an empty deque")
    self.reshape(call.tracing)
    taken: Value = self.items.pop(-1 if call.fn is collections.deque.pop else 0)
    return taken


def _as_int(tracer: Tracing, value: Value) -> int:
    if not hasattr(value.python_type(), "__index__"):
        tracer.raise_error(TypeError, f"'{value.python_type().__name__}' object cannot be interpreted as an integer")
    number: int = tracer.python.index(value).as_constant()
    return number


@method_of(DequeValue, collections.deque.rotate)
def rotate(tracer: Tracing, self: DequeValue, steps: Value | None = None) -> None:
    """Move items from one end to the other."""
    if len(self.items) > 1:
        self.reshape(tracer)
        shift = (1 if steps is None else _as_int(tracer, steps)) % len(self.items)
        self.items[:] = self.items[-shift:] + self.items[:-shift] if shift else self.items


@method_of(DequeValue, collections.deque.insert)
def insert(tracer: Tracing, self: DequeValue, position: Value, item: Value) -> None:
    """Insert an item before a position."""
    place = _as_int(tracer, position)
    if self.limit.as_constant() == len(self.items):
        tracer.raise_error(IndexError, "deque already at its maximum size")
    self.reshape(tracer)
    self.items.insert(place, item)


@method_of(DequeValue, collections.deque.remove)
def remove(tracer: Tracing, self: DequeValue, item: Value) -> None:
    """Remove the first item that equals the argument."""
    for position, other in enumerate(self.items):
        if tracer.python.same_or_equal(other, item):
            self.reshape(tracer)
            del self.items[position]
            return
    raise_not_found(tracer, self, item)


@method_of(DequeValue, collections.deque.clear)
def clear(tracer: Tracing, self: DequeValue) -> None:
    """Remove all items."""
    if self.items:
        self.reshape(tracer)
    self.items.clear()


@method_of(DequeValue, collections.deque.reverse)
def reverse(tracer: Tracing, self: DequeValue) -> None:
    """Reverse the items."""
    tracer.mutate(self)
    self.items.reverse()


@method_of(DequeValue, collections.deque.__iadd__)
def extend_in_place(tracer: Tracing, self: DequeValue, items: Value) -> Value:
    """`self += items`."""
    extend(tracer, self, items)
    return self


@method_of(DequeValue, collections.deque.copy)
def copy(tracer: Tracing, self: DequeValue) -> Value:
    """Another deque with the same items."""
    return DequeValue(list(self.items), limit=self.limit)


@handles(collections.deque)
def make_deque(call: Call, iterable: Value | None = None, maxlen: Value | None = None) -> Value:
    """A new deque."""
    limit = call.constant(None) if maxlen is None else maxlen
    if limit.python_type() is not NoneType:
        if not issubclass(limit.python_type(), int):
            call.tracing.raise_error(TypeError, "an integer is required")
        if limit.as_constant() < 0:
            call.tracing.raise_error(ValueError, "maxlen must be non-negative")
    made = DequeValue([], limit=limit)
    if iterable is not None:
        extend(call.tracing, made, iterable)
    return made


def of_program(obj: collections.deque[object], source: Source, tracer: Tracing) -> Value:
    """A deque of the program."""
    tracer.guards.length(source, len(obj))
    limit = tracer.objects.wrap(obj.maxlen, AttrSource(source, "maxlen"))
    made = DequeValue([], limit=limit, source=source)
    made.known_items = [tracer.objects.wrap(item, ItemSource(source, position)) for position, item in enumerate(obj)]
    return made


VALUE_TYPES = (ValueType(collections.deque, of_program),)
