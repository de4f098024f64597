"""Lists, tuples and their kin (named tuples, torch.Size, results of torch functions), slices and ranges."""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable, Hashable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import attrs
import torch

from armature.introspection import class_member
from armature.trace.semantics.slots import COMPARED_BY, COMPARISONS, Comparison
from armature.trace.values.base import (
    Args,
    Kwargs,
    NotConstant,
    Value,
    Write,
    is_nan,
    raise_lacking,
    raise_unordered,
    type_name,
)
from armature.trace.values.methods import PROTOCOLS, ContainerValue

if TYPE_CHECKING:
    from armature.trace.values.base import Rebuilding, Tracing


@attrs.define(eq=False)
class SequenceValue(ContainerValue):
    """What lists and tuples share."""

    items: list[Value]
    reshaped: int = attrs.field(default=0, kw_only=True)  # how often items came or went, where iterators look at that

    mutable: ClassVar[bool] = True

    def contents(self) -> object:
        return self.items

    def as_constant(self) -> Any:
        return self.make([item.as_constant() for item in self.items])

    def as_argument(self, tracer: Tracing) -> object:
        return self.make([item.as_argument(tracer) for item in self.items])

    def as_fake(self, tracer: Tracing) -> object:
        return self.make([item.as_fake(tracer) for item in self.items])

    def make(self, items: list[Any]) -> object:
        """A Python object of this kind with these items."""
        raise NotImplementedError(type(self).__name__)

    def like(self, items: list[Value]) -> Value:
        """A value for the plain sequence (list or tuple) of these items."""
        raise NotImplementedError(type(self).__name__)

    def length(self, tracer: Tracing) -> int:
        return len(self.items)

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        position = 0
        while position < len(self.items):  # not a `for`: the program may change the list meanwhile
            yield self.items[position]
            position += 1

    def backwards(self, tracer: Tracing) -> Iterator[Value]:
        """The values that iterating backwards gives."""
        position = len(self.items) - 1
        while 0 <= position < len(self.items):
            yield self.items[position]
            position -= 1

    def get_item(self, tracer: Tracing, key: Value) -> Value:
        index: int | slice = index_of(tracer, key, tuple if isinstance(self, TupleValue) else list)
        if isinstance(index, slice):
            try:
                return self.like(self.items[index])
            except ValueError as error:  # a step of zero
                tracer.raise_real(error)
        try:
            return self.items[index]
        except IndexError as error:
            kind = "tuple" if isinstance(self, TupleValue) else self.python_type().__name__
            if abs(index) > sys.maxsize:
                tracer.raise_real(error)
            tracer.raise_error(IndexError, f"{kind} index out of range")

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if name in COMPARED_BY:
            return self._compared(tracer, COMPARED_BY[name], other) if isinstance(other, SequenceValue) else None
        if name in ("__mul__", "__rmul__") and is_count(other):
            return self.like(self.repeated(tracer, other))
        return None

    def _compared(self, tracer: Tracing, row: Comparison, other: SequenceValue) -> Value:
        """Item by item; the first two that differ decide (reference, 6.10.1)."""
        alike = type(self) is type(other)
        if row.symbol in ("==", "!="):
            equal = alike and len(self.items) == len(other.items)
            equal = equal and all(tracer.python.same_or_equal(a, b) for a, b in zip(self.items, other.items))
            return tracer.constant(equal == (row.symbol == "=="))
        if not alike:
            raise_unordered(tracer, row.symbol, self, other)
        for a, b in zip(self.items, other.items):
            if not tracer.python.same_or_equal(a, b):
                return tracer.python.compare(row.symbol, a, b)
        return tracer.constant(row.function(len(self.items), len(other.items)))

    def repeated(self, tracer: Tracing, count: Value) -> list[Value]:
        """The items as often as a number says."""
        try:
            many: list[Value] = self.items * count.as_constant()
            return many
        except (OverflowError, MemoryError) as error:
            tracer.raise_real(error)

    def raise_not_found(self, tracer: Tracing, item: Value) -> NoReturn:
        """The ValueError of the program for an item that a list or deque has not."""
        ending = tracer.constant(f" is not in {self.python_type().__name__}")
        parts = TupleValue([tracer.python.builtin(repr, item), ending])
        tracer.raise_value(ValueError, (tracer.python.builtin(str.join, tracer.constant(""), parts),))


@attrs.define(eq=False)
class ListValue(SequenceValue):
    """A list."""

    def python_type(self) -> type:
        return list

    def make(self, items: list[Any]) -> object:
        return items

    def like(self, items: list[Value]) -> Value:
        return ListValue(items)

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if name == "__add__" and isinstance(other, ListValue):
            return ListValue([*self.items, *other.items])
        if name == "__iadd__":
            _extend(tracer, self, other)
            return self
        if name == "__imul__" and is_count(other):
            items = self.repeated(tracer, other)
            tracer.mutate(self)
            self.items[:] = items
            return self
        return super().binary(tracer, name, other)

    def key(self, tracer: Tracing) -> Hashable:
        raise_lacking(tracer, self, "__hash__")

    def set_item(self, tracer: Tracing, key: Value, value: Value) -> None:
        index = index_of(tracer, key)
        kind = value.python_type()
        if isinstance(index, slice) and not (hasattr(kind, "__iter__") or hasattr(kind, "__getitem__")):
            not_iterable: Any = 0
            try:
                [None].__setitem__(index, not_iterable)
            except TypeError as error:
                tracer.raise_real(error)
        new: Any = value
        if isinstance(index, slice):
            plain = index.step in (None, 1)
            text = "can only assign an iterable" if plain else "must assign iterable to extended slice"
            new = tracer.python.in_sequence(value, text)
        tracer.mutate(self)
        try:
            self.items[index] = new
        except (IndexError, ValueError) as error:
            tracer.raise_real(error)

    def delete_item(self, tracer: Tracing, key: Value) -> None:
        index = index_of(tracer, key)
        tracer.mutate(self)
        try:
            del self.items[index]
        except (IndexError, ValueError) as error:
            tracer.raise_real(error)

    def rebuild(self, out: Rebuilding) -> None:
        for item in self.items:
            out.load(item)
        out.build("BUILD_LIST", len(self.items))

    def writes(self, out: Rebuilding) -> list[Write]:
        return [Write(list.__setitem__, (self, out.value(slice(None)), ListValue(list(self.items))))]


@attrs.define(eq=False)
class TupleValue(SequenceValue):
    """A tuple, or one of its subclasses: `kind`. `prototype`: what made it, for results that torch alone can make."""

    kind: type = tuple

    def python_type(self) -> type:
        return self.kind

    def make(self, items: list[Any]) -> object:
        if self.kind is tuple or is_structseq(self.kind):
            return tuple(items)
        if self.kind is torch.Size:
            return torch.Size(items) if all(isinstance(i, int) for i in items) else tuple(items)
        return tuple.__new__(self.kind, items)

    def like(self, items: list[Value]) -> Value:
        return TupleValue(items, torch.Size if self.kind is torch.Size else tuple)

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if name == "__add__" and isinstance(other, TupleValue) and self.kind is other.kind is tuple:
            return TupleValue([*self.items, *other.items])
        return super().binary(tracer, name, other)

    def key(self, tracer: Tracing) -> Hashable:
        try:
            constant: Hashable = super().as_constant()
            hash(constant)
        except (NotConstant, TypeError):
            return tuple(item.key(tracer) for item in self.items)
        if is_nan(constant):
            tracer.graph_break("nan-as-key")
        return constant

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        fields = field_names(self.kind) if is_structseq(self.kind) else ()
        if name in fields:
            return self.items[fields.index(name)]
        if self.kind is tuple or self.kind is torch.Size or is_structseq(self.kind):
            return super().get_attribute(tracer, name)
        if class_member(self.kind, name) is class_member(tuple, name):
            return super().get_attribute(tracer, name)
        return tracer.python.class_attribute(self, self.kind, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "numel" and self.kind is torch.Size:
            total: Value = tracer.constant(1)
            try:
                torch.Size().numel(*args, **kwargs)
            except TypeError as error:
                tracer.raise_real(error)
            for item in self.items:
                total = tracer.python.operate("mul", total, item)
            return total
        if name not in SHARED_METHODS and name not in PROTOCOLS:
            return tracer.python.class_attribute(self, self.kind, name).call(tracer, args, kwargs)
        return super().call_method(tracer, name, args, kwargs)

    def rebuild(self, out: Rebuilding) -> None:
        by_class = self.kind is torch.Size or is_structseq(self.kind)
        if by_class:
            out.null_function(self.kind)
        elif self.kind is not tuple:
            out.null_function(tuple.__new__)  # not by `_make`: that is Python, and may be the very function
            out.constant(self.kind)
        for item in self.items:
            out.load(item)
        out.build("BUILD_TUPLE", len(self.items))
        if self.kind is not tuple:
            out.call(1 if by_class else 2)


def is_count(value: Value) -> bool:
    """Whether it is an int that a sequence may be repeated by: one that tracing knows, or may rely on."""
    return value.is_symbolic or (value.is_constant and isinstance(value.as_constant(), int))


def is_structseq(kind: type) -> bool:
    """Whether it is a tuple type made in C with named fields (torch.return_types.max)."""
    return hasattr(kind, "n_sequence_fields") and not hasattr(kind, "_make")


def is_named_tuple(kind: type) -> bool:
    """Whether objects of the type are tuples with names for the items and nothing else of their own."""
    if not issubclass(kind, tuple) or not hasattr(kind, "_fields") or kind.__dictoffset__:
        return False
    return all(getattr(kind, name, None) is getattr(tuple, name, None) for name in TUPLE_METHODS)


# What a class of named tuples inherits, so that its objects are as plain tuples: `__bool__` is nowhere.
TUPLE_METHODS = (
    "__getitem__", "__len__", "__iter__", "__contains__", "__add__", "__mul__", "__rmul__", "__hash__",
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__",
)  # fmt: skip


def field_names(kind: type) -> tuple[str, ...]:
    """Names of the items of a named tuple type, none for a plain tuple."""
    if kind is tuple or kind is torch.Size:
        return ()
    if is_structseq(kind):
        return tuple(getattr(kind, "__match_args__", ()))
    return tuple(getattr(kind, "_fields", ()))


def index_of(tracer: Tracing, key: Value, kind: type = list) -> Any:
    """The int or slice that a subscript stands for. `kind`: the class of what is subscribed, for the error."""
    try:
        index = tracer.python.index(key).as_constant()
    except NotConstant:
        if key.is_tensor:
            tracer.graph_break("index-that-is-a-tensor")
        tracer.graph_break("index-of-object", type=key.describe())
    if isinstance(index, (int, slice)):
        return index
    if hasattr(type(index), "__index__"):
        return int(index)
    tracer.raise_error(
        TypeError, f"{kind.__name__} indices must be integers or slices, not {type_name(key.python_type())}"
    )


def place_of(tracer: Tracing, position: Value) -> Any:
    """The int that an argument stands for. TypeError of the program for what is none."""
    if not hasattr(position.python_type(), "__index__"):
        raise_lacking(tracer, position, "__index__")
    return index_of(tracer, position)


def _position(tracer: Tracing, self: SequenceValue, item: Value, *bounds: Value) -> Value:
    first, last, *_ = (*(place_of(tracer, bound) for bound in bounds), None, None)
    start, stop, _ = slice(first or 0, last).indices(len(self.items))
    for position in range(start, stop):
        if tracer.python.same_or_equal(self.items[position], item):
            return tracer.constant(position)
    if isinstance(self, TupleValue):
        tracer.raise_error(ValueError, "tuple.index(x): x not in tuple")
    self.raise_not_found(tracer, item)


def _count(tracer: Tracing, self: SequenceValue, item: Value) -> Value:
    return tracer.constant(sum(tracer.python.same_or_equal(other, item) for other in self.items))


def comparison(op: str, *kinds: type) -> Callable[..., Value]:
    """The method of a comparison, for objects of builtin classes that compare with their own kind only."""

    def method(tracer: Tracing, self: Value, other: Value) -> Value:
        kind = next((kind for kind in kinds if issubclass(self.python_type(), kind)), None)
        if kind is not None and not issubclass(other.python_type(), kind):
            return tracer.constant(NotImplemented)
        return tracer.python.compare(op, self, other)

    return method


def _add(tracer: Tracing, self: SequenceValue, other: Value) -> Value:
    more = other.base if other.base is not None else other
    kind = self.python_type()
    alike = kind in (torch.Size, collections.deque) or more.python_type() is torch.Size
    fits = more.python_type() is kind if alike else isinstance(more, SequenceValue)
    if not fits:  # the method of the other object has no say here
        tracer.graph_break("sequence-arithmetic", operation="+", type=other.describe())
    return tracer.python.operate("add", self, more)


def _times(tracer: Tracing, self: SequenceValue, count: Value) -> Value:
    times = tracer.python.index(count)
    if not issubclass(times.python_type(), int):
        tracer.graph_break("sequence-arithmetic", operation="*", type=count.describe())
    return tracer.python.operate("mul", self, times)


SHARED_METHODS: dict[str, Callable[..., Value | None]] = {
    "index": _position,
    "count": _count,
    **{row.method: comparison(row.symbol, list, tuple, collections.deque) for row in COMPARISONS.values()},
    "__add__": _add,
    "__rmul__": _times,
    "__mul__": _times,
}
SequenceValue.methods = SHARED_METHODS


def _append(tracer: Tracing, self: ListValue, item: Value) -> None:
    tracer.mutate(self)
    self.items.append(item)


def _extend(tracer: Tracing, self: ListValue, more: Value) -> None:
    if more.plain_items:
        added = list(tracer.python.taken(more))
        tracer.mutate(self)
        self.items.extend(added)
        return
    for item in tracer.python.taken(more):  # what makes them may look at the list, or raise
        _append(tracer, self, item)


def _insert(tracer: Tracing, self: ListValue, position: Value, item: Value) -> None:
    at = place_of(tracer, position)
    tracer.mutate(self)
    self.items.insert(at, item)


def _pop(tracer: Tracing, self: ListValue, position: Value | None = None) -> Value:
    at = -1 if position is None else place_of(tracer, position)
    tracer.mutate(self)
    try:
        return self.items.pop(at)
    except IndexError as error:
        tracer.raise_real(error)


def _remove(tracer: Tracing, self: ListValue, item: Value) -> None:
    for position, other in enumerate(self.items):
        if tracer.python.same_or_equal(other, item):
            tracer.mutate(self)
            del self.items[position]
            return
    tracer.raise_error(ValueError, "list.remove(x): x not in list")


def _clear(tracer: Tracing, self: ListValue) -> None:
    tracer.mutate(self)
    self.items.clear()


def _reverse(tracer: Tracing, self: ListValue) -> None:
    tracer.mutate(self)
    self.items.reverse()


def _sort(tracer: Tracing, self: ListValue, *, key: Value | None = None, reverse: Value | None = None) -> None:
    """The list is empty while keys and items are asked, and refuses what they put in it."""
    tracer.mutate(self)
    ordered = held = list(self.items)
    self.items.clear()
    try:
        ordered = sorted_items(tracer, held, key, reverse)
    finally:
        changed = bool(self.items)
        self.items[:] = ordered
    if changed:
        tracer.raise_error(ValueError, "list modified during sort")


@attrs.frozen(eq=False)
class TracedOrder:
    """A key to sort by whose `<` is traced."""

    value: Value
    tracer: Tracing

    def __lt__(self, other: TracedOrder) -> bool:
        kind = self.value.python_type()
        if kind is other.value.python_type() and isinstance(class_member(kind, "__lt__"), FunctionType):
            found = self.value.binary(self.tracer, "__lt__", other.value)
            if found is None:  # how often C code asks once more is its own matter
                self.tracer.graph_break("sort-comparisons", type=self.value.describe())
            return found.truth(self.tracer)
        return self.tracer.python.compare("<", self.value, other.value).truth(self.tracer)


def sorted_items(tracer: Tracing, items: list[Value], key: Value | None, reverse: Value | None) -> list[Value]:
    """The items in the order of their keys."""
    plain = key is None or (key.is_constant and key.as_constant() is None)
    by = items if key is None or plain else [key.call(tracer, (item,), {}) for item in items]
    try:
        keys: list[Any] = [value.as_constant() for value in by]
    except NotConstant:
        keys = [TracedOrder(value, tracer) for value in by]
    backwards = reverse is not None and reverse.truth(tracer)
    try:
        order = sorted(range(len(items)), key=keys.__getitem__, reverse=backwards)
    except TypeError as error:
        if any(value.base is not None for value in by):  # it names the classes of the program
            tracer.graph_break("sort-of-derived-class")
        tracer.raise_real(error)
    return [items[position] for position in order]


def _init(tracer: Tracing, self: ListValue, *items: Value) -> None:
    _clear(tracer, self)
    for more in items:
        _extend(tracer, self, more)


LIST_METHODS: dict[str, Callable[..., Value | None]] = {
    "append": _append,
    "extend": _extend,
    "insert": _insert,
    "pop": _pop,
    "remove": _remove,
    "clear": _clear,
    "reverse": _reverse,
    "sort": _sort,
    "copy": lambda tracer, self: ListValue(list(self.items)),
    "__init__": _init,
    "__iadd__": lambda tracer, self, more: self.binary(tracer, "__iadd__", more),
}
ListValue.methods = {**SHARED_METHODS, **LIST_METHODS}


def leaves(value: Value) -> list[Value]:
    """The value, or what a list or tuple of values holds."""
    if not isinstance(value, (ListValue, TupleValue)):
        return [value]
    return [leaf for item in value.items for leaf in leaves(item)]
