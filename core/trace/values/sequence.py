"""Lists, tuples and their kin (named tuples, torch.Size, results of torch functions)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import torch

from armature.introspection import class_member
from armature.trace.base import Args, Kwargs, NotConstant, Value, Write, is_nan, raise_unordered, type_name
from armature.trace.slots import COLLECTION_SLOTS, COMPARED_BY, UNARY, Comparison
from armature.trace.values.methods import ContainerValue

if TYPE_CHECKING:
    from armature.trace.base import Rebuilding, Tracing


@attrs.define(eq=False)
class SequenceValue(ContainerValue):
    """Behaviour common to lists and tuples."""

    known_items: list[Value]
    # how often items were added or removed, if iterators check that
    reshaped: int = attrs.field(default=0, kw_only=True)

    mutable: ClassVar[bool] = True
    slots = COLLECTION_SLOTS | COMPARED_BY.keys() | {"__getitem__", "__reversed__", "__add__", "__mul__", "__rmul__"}

    @property
    def items(self) -> list[Value]:
        """The items."""
        return self.known_items

    def contents(self) -> object:
        return self.items

    def shape(self) -> tuple[int, int]:
        return self.reshaped, 0

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
        """Compare item by item; the first difference decides (reference, 6.10.1)."""
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
        """The items, repeated a number of times."""
        try:
            many: list[Value] = self.items * count.as_constant()
            return many
        except (OverflowError, MemoryError) as error:
            tracer.raise_real(error)


@attrs.define(eq=False)
class ListValue(SequenceValue):
    """A list. `pending`: reads the items of the program's own list; None once they are known (and guarded). Until then
    `held` has what was appended: a loop that collects its results compiles no code for each length."""

    pending: Callable[[], list[Value]] | None = attrs.field(default=None, kw_only=True)

    @property
    def items(self) -> list[Value]:
        if self.pending is not None:
            read, self.pending = self.pending, None
            self.known_items[:0] = read()
        return self.known_items

    slots = SequenceValue.slots | {"__setitem__", "__delitem__", "__iadd__", "__imul__"}

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
            self.call_method(tracer, "extend", (other,), {})
            return self
        if name == "__imul__" and is_count(other):
            items = self.repeated(tracer, other)
            tracer.mutate(self)
            self.items[:] = items
            return self
        return super().binary(tracer, name, other)

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

    def fill(self, out: Rebuilding, owner: Value) -> list[Write]:
        return [Write(list.extend, (owner, ListValue(list(self.known_items))))]

    def writes(self, out: Rebuilding) -> list[Write]:
        if self.pending is not None:
            return self.fill(out, self)
        return [Write(list.__setitem__, (self, out.value(slice(None)), ListValue(list(self.items))))]


@attrs.define(eq=False)
class TupleValue(SequenceValue):
    """A tuple, or one of its subclasses: `kind`. `prototype`: an example, for results that only torch can make."""

    kind: type = tuple

    slots = SequenceValue.slots | UNARY.keys() | {"__hash__"}  # a named tuple may add some

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
        if name == "__add__" and isinstance(other, TupleValue) and {self.kind, other.kind} <= {tuple, torch.Size}:
            items = [*self.items, *other.items]
            kind = tuple if self.kind is other.kind is tuple else torch.Size
            if kind is tuple or all(issubclass(item.python_type(), int) for item in items):
                return TupleValue(items, kind)
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
        fields = getattr(self.kind, "__match_args__", ()) if is_structseq(self.kind) else ()
        if name in fields:
            return self.items[fields.index(name)]
        if self.kind is tuple or self.kind is torch.Size or is_structseq(self.kind):
            return super().get_attribute(tracer, name)
        if class_member(self.kind, name) is class_member(tuple, name):
            return super().get_attribute(tracer, name)
        return tracer.python.class_attribute(self, self.kind, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if self.kind is torch.Size or class_member(self.kind, name) is class_member(tuple, name):
            return super().call_method(tracer, name, args, kwargs)
        return tracer.python.class_attribute(self, self.kind, name).call(tracer, args, kwargs)

    def rebuild(self, out: Rebuilding) -> None:
        by_class = self.kind is torch.Size or is_structseq(self.kind)
        if by_class:
            out.null_function(self.kind)
        elif self.kind is not tuple:
            # not by `_make`: it is Python code, and may be the very function being compiled
            out.null_function(tuple.__new__)
            out.constant(self.kind)
        for item in self.items:
            out.load(item)
        out.build("BUILD_TUPLE", len(self.items))
        if self.kind is not tuple:
            out.call(1 if by_class else 2)


def is_count(value: Value) -> bool:
    """Whether it is an int that a sequence may be repeated by: known, or guardable."""
    return value.is_symbolic or (value.is_constant and isinstance(value.as_constant(), int))


def is_structseq(kind: type) -> bool:
    """Whether it is a tuple type made in C with named fields (torch.return_types.max)."""
    return hasattr(kind, "n_sequence_fields") and not hasattr(kind, "_make")


def is_named_tuple(kind: type) -> bool:
    """Whether objects of the type are tuples with named items and no other behaviour."""
    if not issubclass(kind, tuple) or not hasattr(kind, "_fields") or kind.__dictoffset__:
        return False
    return all(getattr(kind, name, None) is getattr(tuple, name, None) for name in TUPLE_METHODS)


# Methods that a plain named tuple class inherits unchanged from tuple.
TUPLE_METHODS = (
    "__getitem__", "__len__", "__iter__", "__contains__", "__add__", "__mul__", "__rmul__", "__hash__",
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__",
)  # fmt: skip


def index_of(tracer: Tracing, key: Value, kind: type = list) -> Any:
    """The int or slice of a subscript. `kind`: the class of the subscripted object, for the error."""
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


def leaves(value: Value) -> list[Value]:
    """The value, or the values that a list or tuple holds, flattened."""
    if not isinstance(value, (ListValue, TupleValue)):
        return [value]
    return [leaf for item in value.items for leaf in leaves(item)]
