"""Sets and frozen sets."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, ClassVar

import attrs

from armature.trace.values.base import Args, BoundMethod, Kwargs, Value

if TYPE_CHECKING:
    from armature.trace.capture import Tracer
    from armature.trace.rebuild import Rebuilder


@attrs.define(eq=False)
class SetValue(Value):
    """A set or frozenset. One of several members can be asked, combined and changed, but not iterated: see `stream`."""

    entries: dict[Hashable, Value]
    kind: type = set

    mutable: ClassVar[bool] = True

    def python_type(self) -> type:
        return self.kind

    def as_constant(self) -> object:
        return self.kind(value.as_constant() for value in self.entries.values())

    def key(self, tracer: Tracer) -> Hashable:
        if self.kind is set:
            tracer.raise_error(TypeError, "unhashable type: 'set'")
        return frozenset(self.entries)

    def truth(self, tracer: Tracer) -> bool:
        return bool(self.entries)

    def length(self, tracer: Tracer) -> int:
        return len(self.entries)

    def stream(self, tracer: Tracer) -> Iterator[Value]:
        # What order CPython iterates in depends on the history of the table and, for strings, on the hash seed.
        if len(self.entries) > 1:
            tracer.graph_break("unsupported-operation", operation="iteration", type="a set, whose order is not fixed")
        return iter(list(self.entries.values()))

    def contains(self, tracer: Tracer, item: Value) -> bool:
        return item.key(tracer) in self.entries

    def get_attribute(self, tracer: Tracer, name: str) -> Value:
        if not hasattr(self.kind, name):
            tracer.raise_error(AttributeError, f"'{self.kind.__name__}' object has no attribute '{name}'")
        return BoundMethod(self, name)

    def call_method(self, tracer: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        method = SET_METHODS.get(name)
        if method is None or not hasattr(self.kind, name):
            return super().call_method(tracer, name, args, kwargs)
        result = method(tracer, self, *args, **kwargs)
        return tracer.constant(None) if result is None else result

    def binary(self, tracer: Tracer, name: str, other: Value) -> Value | None:
        method = OPERATORS.get(name)
        if method is None or not isinstance(other, SetValue):
            return None
        return method(tracer, self, other)

    def rebuild(self, out: Rebuilder) -> None:
        if self.kind is frozenset:
            out.null_function(frozenset)
        for item in self.entries.values():
            out.load(item)
        out.build("BUILD_SET", len(self.entries))
        if self.kind is frozenset:
            out.call(1)


def members(tracer: Tracer, iterable: Value) -> dict[Hashable, Value]:
    """Distinct members of any iterable. A set gives its members whatever their order."""
    if isinstance(iterable, SetValue):
        return iterable.entries
    found: dict[Hashable, Value] = {}
    for item in tracer.unpack(iterable):
        found.setdefault(item.key(tracer), item)
    return found


def _add(tracer: Tracer, self: SetValue, item: Value) -> None:
    tracer.mutate(self)
    self.entries.setdefault(item.key(tracer), item)


def _discard(tracer: Tracer, self: SetValue, item: Value) -> None:
    tracer.mutate(self)
    self.entries.pop(item.key(tracer), None)


def _remove(tracer: Tracer, self: SetValue, item: Value) -> None:
    if item.key(tracer) not in self.entries:
        tracer.raise_value(KeyError, (item,))
    _discard(tracer, self, item)


def _clear(tracer: Tracer, self: SetValue) -> None:
    tracer.mutate(self)
    self.entries.clear()


def update(tracer: Tracer, self: SetValue, *others: Value) -> None:
    """`self.update(*others)`."""
    for other in others:
        added = members(tracer, other)
        tracer.mutate(self)
        for key, item in added.items():
            self.entries.setdefault(key, item)


def _union(tracer: Tracer, self: SetValue, *others: Value) -> Value:
    entries = dict(self.entries)
    for other in others:
        for key, item in members(tracer, other).items():
            entries.setdefault(key, item)
    return SetValue(entries, self.kind)


def _intersection(tracer: Tracer, self: SetValue, *others: Value) -> Value:
    kept = dict(self.entries)
    for other in others:
        among = members(tracer, other)
        kept = {key: item for key, item in kept.items() if key in among}
    return SetValue(kept, self.kind)


def _difference(tracer: Tracer, self: SetValue, *others: Value) -> Value:
    kept = dict(self.entries)
    for other in others:
        among = members(tracer, other)
        kept = {key: item for key, item in kept.items() if key not in among}
    return SetValue(kept, self.kind)


def _symmetric_difference(tracer: Tracer, self: SetValue, other: Value) -> Value:
    theirs = members(tracer, other)
    entries = {key: item for key, item in self.entries.items() if key not in theirs}
    entries |= {key: item for key, item in theirs.items() if key not in self.entries}
    return SetValue(entries, self.kind)


def _replace(tracer: Tracer, self: SetValue, result: Value) -> Value:
    if self.kind is frozenset:
        return result
    tracer.mutate(self)
    self.entries = result.entries  # type: ignore[attr-defined]
    return self


def _is_subset(tracer: Tracer, self: SetValue, other: Value) -> bool:
    return self.entries.keys() <= members(tracer, other).keys()


def _is_superset(tracer: Tracer, self: SetValue, other: Value) -> bool:
    return self.entries.keys() >= members(tracer, other).keys()


SET_METHODS: dict[str, Callable[..., Value | None]] = {
    "add": _add,
    "discard": _discard,
    "remove": _remove,
    "clear": _clear,
    "update": update,
    "union": _union,
    "intersection": _intersection,
    "difference": _difference,
    "symmetric_difference": _symmetric_difference,
    "copy": lambda tracer, self: SetValue(dict(self.entries), self.kind),
    "issubset": lambda tracer, self, other: tracer.constant(_is_subset(tracer, self, other)),
    "issuperset": lambda tracer, self, other: tracer.constant(_is_superset(tracer, self, other)),
    "isdisjoint": lambda tracer, self, other: tracer.constant(self.entries.keys().isdisjoint(members(tracer, other))),
    "__len__": lambda tracer, self: tracer.constant(len(self.entries)),
    "__iter__": lambda tracer, self: tracer.iterator(self),
    "__contains__": lambda tracer, self, item: tracer.constant(self.contains(tracer, item)),
}
OPERATORS: dict[str, Callable[..., Value]] = {
    "__or__": _union,
    "__and__": _intersection,
    "__sub__": _difference,
    "__xor__": _symmetric_difference,
    "__ior__": lambda tracer, self, other: _replace(tracer, self, _union(tracer, self, other)),
    "__iand__": lambda tracer, self, other: _replace(tracer, self, _intersection(tracer, self, other)),
    "__isub__": lambda tracer, self, other: _replace(tracer, self, _difference(tracer, self, other)),
    "__ixor__": lambda tracer, self, other: _replace(tracer, self, _symmetric_difference(tracer, self, other)),
    "__le__": lambda tracer, self, other: tracer.constant(_is_subset(tracer, self, other)),
    "__ge__": lambda tracer, self, other: tracer.constant(_is_superset(tracer, self, other)),
    "__lt__": lambda tracer, self, other: tracer.constant(self.entries.keys() < other.entries.keys()),
    "__gt__": lambda tracer, self, other: tracer.constant(self.entries.keys() > other.entries.keys()),
    "__eq__": lambda tracer, self, other: tracer.constant(self.entries.keys() == other.entries.keys()),
    "__ne__": lambda tracer, self, other: tracer.constant(self.entries.keys() != other.entries.keys()),
}
