"""Dicts, and the behaviour that other mappings share with them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from armature.frame.keys import stored_key
from armature.frame.sources import ItemSource, MemberSource, object_source
from armature.trace.base import NotConstant, Value, Write, type_name
from armature.trace.slots import COLLECTION_SLOTS, EQUALITY_SLOTS
from armature.trace.values.keys import is_new, looked_up
from armature.trace.values.methods import ContainerValue
from armature.trace.values.streams import Steps, Walk

if TYPE_CHECKING:
    from armature.trace.base import Rebuilding, Tracing


@attrs.define(eq=False)
class DictValue(ContainerValue):
    """A dict, or another mapping that stores its items as dicts do, with its own value class and `kind`. `entries`:
    hashable key to (key, value).

    `pending`: the program's own dict while its items are wrapped one by one as they are read; None once all of it is
    known (and guarded).
    """

    entries: dict[Hashable, tuple[Value, Value]]
    kind: Any = dict
    pending: Mapping[Any, object] | None = None
    owner: Value | None = None  # the object of a derived class whose builtin part this is
    instance: Value | None = None  # the object made in the frame whose `__dict__` this is
    fixed: bool = False  # the variables of a module: read only
    reshaped: int = 0  # how often a key was added, removed or moved

    mutable: ClassVar[bool] = True
    slots = (
        COLLECTION_SLOTS
        | EQUALITY_SLOTS
        | {"__getitem__", "__setitem__", "__delitem__", "__reversed__", "__or__", "__ror__", "__ior__"}
    )
    changed_text: ClassVar[str] = "dictionary changed size during iteration"
    ordered: ClassVar[bool] = False  # whether iterators detect every change of keys, not only a change of their number

    def contents(self) -> object:
        return self.entries

    def shape(self) -> tuple[int, int]:
        return self.reshaped, len(self.entries)

    def like(self, entries: dict[Hashable, tuple[Value, Value]]) -> DictValue:
        """A new dict of the same kind; for a view, of the kind of its dict."""
        return DictValue(entries, self.kind)

    def python_type(self) -> type:
        kind: type = self.kind
        return kind

    def realise(self, tracer: Tracing) -> dict[Hashable, tuple[Value, Value]]:
        """All entries, in order; guards the keys."""
        if self.pending is not None:
            real, read, self.pending = self.pending, self.entries, None
            if self.source is not None:
                tracer.guards.keys(self.source, list(self.kind.__iter__(real)))
            self.entries = {}
            for obj in list(self.kind.__iter__(real)):
                key = tracer.as_value(obj)
                hashed = key.key(tracer)
                held = read[hashed][1] if hashed in read else wrap_item(tracer, self, real, obj)
                self.entries[hashed] = (key, held)  # it may have been read under an equal key
        return self.entries

    def find(self, tracer: Tracing, key: Value) -> Value | None:
        """The value under a key; None when there is none."""
        hashed = key.key(tracer)
        entry = self.entries.get(hashed)
        if entry is None and self.pending is None:
            entry = self.entries.get(looked_up(tracer, hashed, self.entries))
        if entry is not None or self.pending is None:
            return None if entry is None else entry[1]
        try:
            obj = key.as_key()
        except NotConstant:
            # A tuple of classes or objects can be compared with the existing keys once all are known.
            if is_new(hashed):
                return None
            entries = self.realise(tracer)
            entry = entries.get(looked_up(tracer, hashed, entries))
            return None if entry is None else entry[1]
        if not (key.is_constant or isinstance(obj, (tuple, frozenset))) and key.source is not None:
            key.rely_on(tracer)
        elif key.is_tensor:
            return None
        if not self.kind.__contains__(self.pending, obj):
            if self.source is not None:
                tracer.guards.absent(self.source, obj)
            return None
        value = wrap_item(tracer, self, self.pending, obj)
        self.entries[hashed] = (key, value)
        return value

    def as_constant(self) -> Any:
        if self.pending is not None or self.kind is not dict:
            return super().as_constant()
        return {key.as_constant(): value.as_constant() for key, value in self.entries.values()}

    def as_argument(self, tracer: Tracing) -> object:
        return {key.as_constant(): value.as_argument(tracer) for key, value in self.realise(tracer).values()}

    def as_fake(self, tracer: Tracing) -> object:
        return {key.as_constant(): value.as_fake(tracer) for key, value in self.realise(tracer).values()}

    def length(self, tracer: Tracing) -> int:
        if self.pending is None:
            return len(self.entries)
        length: int = self.kind.__len__(self.pending)
        if self.source is not None:
            tracer.guards.length(self.source, length)
        return length

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        return self.entry_stream(tracer, lambda entry: entry[0])

    def backwards(self, tracer: Tracing) -> Iterator[Value]:
        return self.entry_stream(tracer, lambda entry: entry[0], backwards=True)

    def entry_stream(
        self, tracer: Tracing, of: Callable[[tuple[Value, Value]], Value], *, backwards: bool = False
    ) -> Iterator[Value]:
        """Apply `of` to each entry, as it is when reached."""
        keys = list(self.realise(tracer))
        if backwards:
            keys.reverse()
        walk = Walk(tracer, self, keys, self.changed_text, self.reshaped, not self.ordered)
        return Steps(lambda: of(self.entries[next(walk)]))

    def contains(self, tracer: Tracing, item: Value) -> bool:
        return self.find(tracer, item) is not None

    def get_item(self, tracer: Tracing, key: Value) -> Value:
        found = self.find(tracer, key)
        return self.missing(tracer, key) if found is None else found

    def missing(self, tracer: Tracing, key: Value) -> Value:
        """The value for a missing key: by `__missing__` of a derived class, else KeyError."""
        missing = None if self.owner is None else tracer.python.method_or_none(self.owner, "__missing__")
        if missing is not None:
            return missing.call(tracer, (key,), {})
        tracer.raise_value(KeyError, (key,))

    def set_item(self, tracer: Tracing, key: Value, value: Value) -> None:
        hashed, entries = key.key(tracer), self.change(tracer)
        hashed = looked_up(tracer, hashed, entries)
        held = entries.get(hashed)
        self.reshaped += held is None
        entries[hashed] = (key if held is None else held[0], value)

    def delete_item(self, tracer: Tracing, key: Value) -> None:
        entries, hashed = self.change(tracer), key.key(tracer)
        if entries.pop(looked_up(tracer, hashed, entries), None) is None:
            tracer.raise_value(KeyError, (key,))
        self.reshaped += 1

    def change(self, tracer: Tracing) -> dict[Hashable, tuple[Value, Value]]:
        """All entries, about to be changed."""
        entries = self.realise(tracer)
        tracer.mutate(self)
        return entries

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if self.pending is not None and self.owner is None and name in getattr(self.pending, "__dict__", ()):
            tracer.graph_break("attribute-of-new-dict", name=name, type=self.describe())
        return super().get_attribute(tracer, name)

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if name == "__ior__":
            self.call_method(tracer, "update", (other,), {})
            return self
        if not isinstance(other, DictValue):
            return None
        if name in ("__or__", "__ror__"):
            return merged(tracer, self, other) if name == "__or__" else merged(tracer, other, self)
        mine, theirs = self.realise(tracer), other.realise(tracer)
        equal = mine.keys() == theirs.keys()
        equal = equal and all(tracer.python.same_or_equal(mine[key][1], theirs[key][1]) for key in mine)
        return tracer.constant(equal == (name == "__eq__"))

    def rebuild(self, out: Rebuilding) -> None:
        if self.instance is not None:
            out.load(self.instance)
            out.attribute("__dict__")
            return
        if self.kind is not dict:
            out.null_function(self.kind)
        for key, value in self.entries.values():
            out.load(key)
            out.load(value)
        out.build("BUILD_MAP", len(self.entries))
        if self.kind is not dict:
            out.call(1)

    def fill(self, out: Rebuilding, owner: Value) -> list[Write]:
        kind: Any = self.kind
        return [Write(kind.__setitem__, (owner, key, value)) for key, value in self.entries.values()]

    def writes(self, out: Rebuilding) -> list[Write]:
        kind: Any = self.kind
        # If the keys are unchanged they stay in place, because the program may be iterating over them.
        cleared = [Write(kind.clear, (self,))] if self.reshaped else []
        return [*cleared, Write(dict.update, (self, DictValue(dict(self.entries))))]


def merged(tracer: Tracing, left: DictValue, right: DictValue) -> Value:
    """`left | right`: for a key in both, the key object is the left one's; a derived type on either side beats dict."""
    made = left.like(dict(left.realise(tracer)))
    if made.kind is dict:
        made = right.like(made.entries)
    for key, value in right.realise(tracer).values():
        made.set_item(tracer, key, value)
    return made


def items_of_mapping(tracer: Tracing, other: Value) -> Iterator[tuple[Value, Value]]:
    """The keys and values of a mapping. AttributeError of the program if it has no `keys`."""
    if tracer.python.iterates_plainly(other) and isinstance(other.base, DictValue):
        other = other.base
    if isinstance(other, DictValue):
        yield from list(other.realise(tracer).values())
        return
    keys = other.call_method(tracer, "keys", (), {})
    kind, returned = other.python_type(), type_name(keys.python_type())
    for key in tracer.python.in_sequence(keys, f"{type_name(kind)}.keys() returned a non-iterable (type {returned})"):
        yield key, other.get_item(tracer, key)


def namespace_of(tracer: Tracing, attributes: Mapping[str, Value]) -> DictValue:
    """A dict of names to values."""
    return DictValue({name: (tracer.constant(name), value) for name, value in attributes.items()})


def wrap_item(tracer: Tracing, owner: DictValue, real: Mapping[object, object], key: object) -> Value:
    """The value of an item of a dict of the program."""
    source = owner.source if owner.source is not None else object_source(real)
    if owner.owner is None:
        return tracer.objects.wrap(real[key], ItemSource(source, stored_key(key)))
    return tracer.objects.wrap(owner.kind.__getitem__(real, key), MemberSource(source, owner.kind, stored_key(key)))
