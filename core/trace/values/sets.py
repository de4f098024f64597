"""Sets and frozen sets."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from armature.frame.guards.values import layout, lies_alike
from armature.trace.errors import UserRaised
from armature.trace.values.base import Args, Kwargs, Value, Write, attribute_of_builtin, raise_lacking
from armature.trace.values.keys import is_by_address, looked_up, settle
from armature.trace.values.methods import invoke
from armature.trace.values.sequence import TupleValue
from armature.trace.values.streams import Steps, Walk
from armature.trace.versions import SUBSET_STOPS_EARLY

if TYPE_CHECKING:
    from armature.frame.sources import Source
    from armature.trace.values.base import Rebuilding, Tracing


Make = Callable[[Sequence[Hashable]], Any]  # of items, a set
Enough = Callable[[Hashable, Mapping[Hashable, Value]], bool]  # of an item's key and all items found so far
Order = tuple[list[object], tuple[tuple[int, ...], ...]]  # the members of a set as it is iterated, and its layout


def with_room(slots: int, items: Sequence[Hashable]) -> set[Hashable]:
    """A set that has so many slots, if they are enough. With more, fewer members stand in each other's way."""
    more = [object() for _ in range(slots // 2 - 1 - len(items))]
    made: set[Hashable] = set(dict.fromkeys([*items, *more]))
    made.difference_update(more)
    return made


def begun_with(count: int, items: Sequence[Hashable]) -> set[Hashable]:
    """A set to which items were added that began as a set of a dict's first so many keys."""
    made: set[Hashable] = set(dict.fromkeys(items[:count]))
    for item in items[count:]:
        made.add(item)
    return made


FEW = 5  # of a set with no more members, each order to add them is tried
MANY = 256  # of a set with more members, fewer ways to make it are tried
# What makes a set that leaves the frame. The order of a set comes of how much room it has, and that of how it was made:
# one that has grown by adding has more than the set of a dict's keys, and one that has lost members more than it needs.
WAYS: dict[type, tuple[Make, ...]] = {
    set: (set, *(functools.partial(with_room, 2**power) for power in range(4, 12))),
    frozenset: (frozenset, lambda items: frozenset(dict.fromkeys(items)), lambda items: frozenset(set(items))),
}


@attrs.define(eq=False)
class SetValue(Value):
    """A set or frozenset. `entries`: key to member.

    `table`: a set of the keys that has gone through the same operations, made at the first; it tells the order in which
    CPython iterates. None: not known, because a set of the program was changed.
    `follows`: the members, in order, and the layout of sets of the program by whose order the table goes.
    `changes`: what was done to a set of the program, to be done again to the set itself, whose order comes of it.
    """

    entries: dict[Hashable, Value]
    kind: type = set
    table: set[Hashable] | frozenset[Hashable] | None = attrs.field(
        default=attrs.Factory(lambda self: self.kind(self.entries), takes_self=True)
    )
    follows: dict[Source, Order] = attrs.field(factory=dict)
    changes: list[Write] = attrs.field(factory=list)
    reshaped: int = 0  # how often members came or went
    origin: SetValue | None = None  # of a copy kept for later, what it is a copy of

    mutable: ClassVar[bool] = True
    plain_items: ClassVar[bool] = True

    def contents(self) -> object:
        return self.entries

    def python_type(self) -> type:
        return self.kind

    def as_constant(self) -> Any:
        return self.kind(value.as_constant() for value in self.entries.values())

    def key(self, tracer: Tracing) -> Hashable:
        if self.kind is set:
            raise_lacking(tracer, self, "__hash__")
        return frozenset(self.entries)

    def copy(self) -> SetValue:
        """Another set of the same members."""
        table = None if self.table is None else self.table.copy()
        return SetValue(dict(self.entries), self.kind, table, dict(self.basis()))

    def basis(self) -> dict[Source, Order]:
        """`follows`, or of a set of the program itself: its own members."""
        if self.source is None or self.table is None:
            return self.follows
        return {self.source: ([self.entries[key].as_constant() for key in self.table], layout(self.table))}

    def guard_order(self, tracer: Tracing) -> None:
        """The order is relied on."""
        if len(self.entries) > 1:
            for source, (keys, places) in self.basis().items():
                tracer.guards.keys(source, keys)
                if places and source is not self.source:
                    tracer.guards.metadata(source, functools.partial(lies_alike, places))

    def ordered(self, tracer: Tracing) -> list[Hashable]:
        """The keys in CPython's order, which depends on the set's history and on hashes."""
        if len(self.entries) < 2:
            return list(self.entries)
        if self.table is None or any(map(is_by_address, self.entries)):
            tracer.graph_break("set-order")
        self.guard_order(tracer)
        return list(self.table)

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        walk = Walk(tracer, self, self.ordered(tracer), "Set changed size during iteration", self.reshaped)
        return Steps(lambda: self.entries[next(walk)])

    def change(self, tracer: Tracing, function: Callable[..., object], *operands: Value) -> set[Hashable]:
        """The table, about to be changed by a method; what is done to a table of unknown order does not matter."""
        tracer.mutate(self)
        if self.source is not None:
            self.table = None
            self.changes.append(Write(function, (self, *operands)))
        return set(self.entries) if not isinstance(self.table, set) else self.table

    def truth(self, tracer: Tracing) -> bool:
        return bool(self.entries)

    def length(self, tracer: Tracing) -> int:
        return len(self.entries)

    def contains(self, tracer: Tracing, item: Value) -> bool:
        key = sought(tracer, item)
        looked_up(tracer, key, self.entries)
        return key in self.entries

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return attribute_of_builtin(tracer, self, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        method = SET_METHODS.get(name)
        if name == "__init__" and self.kind is frozenset:  # the one of `object`
            return tracer.constant(None)
        if method is None or not hasattr(self.kind, name):
            return super().call_method(tracer, name, args, kwargs)
        result = invoke(tracer, method, name, (self,), args, kwargs)
        return tracer.constant(None) if result is None else result

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if isinstance(other, SetLike) and name not in COMPARISONS:  # sets leave it to the view, also `set |= view`
            return None if name.startswith("__i") else other.binary(tracer, f"__r{name[2:]}", self)
        method = OPERATORS.get(name)
        other = as_set(tracer, other)
        if method is None or not isinstance(other, SetValue) or not hasattr(self.kind, name):
            return None
        return method(tracer, self, other)

    def rebuild(self, out: Rebuilding) -> None:
        self.guard_order(out.tracer)
        way = self.way_to_make()
        if way is None:
            out.cannot(self)
        make, order = way
        if make is not set:
            out.null_function(make)
        for key in order:
            out.load(self.entries[key])
        out.build("BUILD_SET" if make is set else "BUILD_TUPLE", len(order))
        if make is not set:
            out.call(1)

    def filling(self, out: Rebuilding) -> Value:
        """What an empty set of a derived class is filled with to have the order of the table."""
        way = self.way_to_make()
        if way is None:
            out.cannot(self)
        make, order = way
        if make is self.kind:
            self.guard_order(out.tracer)
            return TupleValue([self.entries[key] for key in order])
        made, filled = make(order), set[Hashable]()
        filled.update(made)
        if list(filled) != list(made):
            out.cannot(self)
        return SetValue(dict(self.entries), self.kind, made, dict(self.basis()))

    def way_to_make(self) -> tuple[Make, list[Hashable]] | None:
        """What makes a set with the order of the table, and of what. None: no likely way does."""
        if len(self.entries) < 2 or any(map(is_by_address, self.entries)):
            return self.kind, list(self.entries)
        if self.table is None:
            return None
        known = list(self.table)
        begun = range(2, len(known)) if self.kind is set and len(known) <= MANY else ()
        ways: list[Make] = [*WAYS[self.kind], *(functools.partial(begun_with, count) for count in begun)]
        for make in ways:
            for order in (known, list(self.entries)):
                if list(make(order)) == known:
                    return make, order
        orders = itertools.permutations(known) if len(known) <= FEW else ()
        return next(((self.kind, list(order)) for order in orders if list(self.kind(order)) == known), None)

    def writes(self, out: Rebuilding) -> list[Write]:
        return [attrs.evolve(change, operands=tuple(map(as_it_is, change.operands))) for change in self.changes]


def as_it_is(operand: Value) -> Value:
    """The set of the program itself, of which a copy was kept for a change to another, where it does not change."""
    origin = operand.origin if isinstance(operand, SetValue) else None
    return operand if origin is None or origin.source is None or origin.changes else origin


def as_set(tracer: Tracing, value: Value) -> Value:
    """A view of keys or items as a set; anything else as it is."""
    return value.as_set(tracer) if isinstance(value, SetLike) else value


class SetLike(Value):
    """What takes part in set operators without being a set."""

    def as_set(self, tracer: Tracing) -> Value:
        """The set of its members; itself where they are no set."""
        raise NotImplementedError(type(self).__name__)


@attrs.frozen(eq=False)
class Members:
    """The members of an iterable: key to member, and what stands for the iterable as an operand on tables.

    `kept`: it as it is now, for changes that are made to a set of the program after the graph has run.
    """

    entries: dict[Hashable, Value]
    operand: Any
    kept: Value
    follows: Mapping[Source, Order] = {}


def members(tracer: Tracing, iterable: Value, enough: Enough | None = None) -> Members:
    """The members of any iterable, taken until there are `enough`."""
    iterable = native_set(iterable)
    if isinstance(iterable, SetValue):
        operand: Any = list(iterable.entries) if iterable.table is None else iterable.table
        kept = iterable.copy()
        kept.origin = iterable
        return Members(iterable.entries, operand, kept, iterable.basis())
    found: dict[Hashable, Value] = {}
    for item in one_by_one(tracer, iterable):
        key = item.key(tracer)
        found.setdefault(key, item)
        if enough is not None and not iterable.plain_items and enough(key, found):
            break
    # CPython makes room for all keys of a dict at once.
    operand = dict.fromkeys(found) if iterable.python_type() is dict else list(found)
    return Members(found, operand, TupleValue(list(found.values())))


def native_set(value: Value) -> Value:
    """A set of a derived class as one of the builtin type: C code takes its members without iterating."""
    return value.base if isinstance(value.base, SetValue) else value


def is_whole(iterable: Value) -> bool:
    """Whether CPython takes the members at once, known to be hashable; of others, those before an error count."""
    return isinstance(iterable, SetValue) or iterable.python_type() is dict


def one_by_one(tracer: Tracing, iterable: Value) -> Iterable[Value]:
    """The items of an iterable, each when it is asked for if they are not at hand."""
    return tracer.unpack(iterable) if iterable.plain_items else iterable.stream(tracer)


def made_of(tracer: Tracing, iterable: Value, kind: type) -> SetValue:
    """`kind(iterable)`."""
    if kind is frozenset and isinstance(iterable, SetValue) and iterable.kind is frozenset:
        return iterable
    given = members(tracer, iterable)
    known = not isinstance(iterable, SetValue) or iterable.table is not None
    return SetValue(dict(given.entries), kind, kind(given.operand) if known else None, dict(given.follows))


def in_any_order(tracer: Tracing, iterable: Value) -> list[Value]:
    """The items of an iterable for what comes out the same in any order; each set of numbers or of strings will do."""
    if isinstance(iterable, SetValue) and {type(key) for key in iterable.entries} in ({int}, {str}):
        return list(iterable.entries.values())
    return tracer.unpack(iterable)


def _add(tracer: Tracing, self: SetValue, item: Value) -> None:
    key = item.key(tracer)
    looked_up(tracer, key, self.entries)
    self.change(tracer, set.add, item).add(key)
    self.reshaped += key not in self.entries
    self.entries.setdefault(key, item)
    settle(key)


def sought(tracer: Tracing, item: Value) -> Hashable:
    """The key under which a set looks for an item: for a set, which has none, the one of a frozenset."""
    try:
        return item.key(tracer)
    except UserRaised:
        held = native_set(item)
        if not isinstance(held, SetValue) or held.kind is not set:
            raise
        return frozenset(held.entries)


def _discard(tracer: Tracing, self: SetValue, item: Value) -> None:
    key = sought(tracer, item)
    looked_up(tracer, key, self.entries)
    self.change(tracer, set.discard, item).discard(key)
    self.reshaped += key in self.entries
    self.entries.pop(key, None)


def _remove(tracer: Tracing, self: SetValue, item: Value) -> None:
    if not self.contains(tracer, item):
        tracer.raise_value(KeyError, (item,))
    _discard(tracer, self, item)


def _pop(tracer: Tracing, self: SetValue) -> Value:
    if not self.entries:
        tracer.raise_error(KeyError, "pop from an empty set")
    if self.source is not None and len(self.entries) > 1:  # it goes on where the pop before it ended
        tracer.graph_break("set-pop")
    self.ordered(tracer)
    self.reshaped += 1
    return self.entries.pop(self.change(tracer, set.pop).pop())


def _clear(tracer: Tracing, self: SetValue) -> None:
    self.change(tracer, set.clear).clear()
    self.reshaped += bool(self.entries)
    self.entries.clear()


def _init(tracer: Tracing, self: SetValue, *items: Value) -> None:
    if self.entries:
        _clear(tracer, self)
    update(tracer, self, *items)


def update(tracer: Tracing, self: SetValue, *others: Value) -> None:
    """`self.update(*others)`."""
    for other in map(native_set, others):
        if not is_whole(other):
            for item in one_by_one(tracer, other):
                _add(tracer, self, item)
            continue
        added = members(tracer, other)
        self.change(tracer, set.update, self if other is self else added.kept).update(added.operand)
        self.follows.update(added.follows)
        self.reshaped += not added.entries.keys() <= self.entries.keys()
        for key, item in added.entries.items():
            self.entries.setdefault(key, item)


def combined(self: SetValue, others: list[Members], operation: str) -> SetValue:
    """The set that an operation on tables gives."""
    known = self.table is not None
    everything, by_key = dict(self.entries), {id(key): item for key, item in self.entries.items()}
    for other in others:
        for key, item in other.entries.items():
            everything.setdefault(key, item)
            by_key.setdefault(id(key), item)  # of equal members, such as 2 and 2.0, the table tells which one stays
    start = self.kind(self.entries) if self.table is None else self.table
    table = getattr(start, operation)(*(other.operand for other in others))
    follows = dict(self.basis())
    for other in others:
        follows.update(other.follows)
    entries = {key: by_key.get(id(key), everything[key]) for key in table}
    return SetValue(entries, self.kind, table if known else None, follows)


def all_of(self: SetValue) -> Enough:
    """Whether all members of a set are found: nothing more can be in an intersection."""
    return lambda _, found: bool(self.entries) and self.entries.keys() <= found.keys()


def _intersection(tracer: Tracing, self: SetValue, *others: Value) -> Value:
    for other in others:  # each may be asked less by what the ones before it leave
        self = combined(self, [members(tracer, other, all_of(self))], "intersection")
    return self if others else combined(self, [], "intersection")


def _operation(name: str) -> Callable[..., Value]:
    def run(tracer: Tracing, self: SetValue, *others: Value) -> Value:
        return combined(self, [members(tracer, other) for other in others], name)

    return run


def _take_out(tracer: Tracing, self: SetValue, others: Sequence[Value]) -> None:
    for item in itertools.chain.from_iterable(one_by_one(tracer, other) for other in others):
        _discard(tracer, self, item)


def _in_place(name: str) -> Callable[..., Value | None]:
    def run(tracer: Tracing, self: SetValue, *others: Value) -> None:
        others = tuple(map(native_set, others))
        taken_out = name == "difference_update"
        if taken_out and not all(other.plain_items for other in others):
            return _take_out(tracer, self, others)
        try:
            enough = all_of(self) if name == "intersection_update" else None
            given = [members(tracer, other, enough) for other in others]
        except UserRaised:  # by a member that has no hash: the members before it are taken out
            if taken_out:
                _take_out(tracer, self, others)
            raise
        result = combined(self, given, name.removesuffix("_update"))
        kept = (self if other is self else one.kept for one, other in zip(given, others, strict=True))
        table = self.change(tracer, getattr(set, name), *kept)
        getattr(table, name)(*(other.operand for other in given))
        self.follows.update(result.follows)
        self.reshaped += result.entries.keys() != self.entries.keys()
        self.entries = result.entries

    return run


def _operator(name: str) -> Callable[..., Value | None]:
    """`self <op>= other`, for a frozenset the plain operator."""

    def run(tracer: Tracing, self: SetValue, other: Value) -> Value | None:
        if self.kind is frozenset:
            return None
        SET_METHODS[name](tracer, self, other)
        return self

    return run


def _is_subset(tracer: Tracing, self: SetValue, other: Value) -> bool:
    enough = all_of(self) if SUBSET_STOPS_EARLY else None
    return self.entries.keys() <= members(tracer, other, enough).entries.keys()


def _is_superset(tracer: Tracing, self: SetValue, other: Value) -> bool:
    return self.entries.keys() >= members(tracer, other, lambda key, _: key not in self.entries).entries.keys()


def _is_disjoint(tracer: Tracing, self: SetValue, other: Value) -> bool:
    if isinstance(other, SetValue):
        return self.entries.keys().isdisjoint(other.entries)
    return not any(item.key(tracer) in self.entries for item in one_by_one(tracer, other))


SET_METHODS: dict[str, Callable[..., Value | None]] = {
    "add": _add,
    "discard": _discard,
    "remove": _remove,
    "clear": _clear,
    "update": update,
    "pop": _pop,
    "__init__": _init,
    "union": _operation("union"),
    "intersection": _intersection,
    "difference": _operation("difference"),
    "symmetric_difference": _operation("symmetric_difference"),
    "intersection_update": _in_place("intersection_update"),
    "difference_update": _in_place("difference_update"),
    "symmetric_difference_update": _in_place("symmetric_difference_update"),
    "copy": lambda tracer, self: self if self.kind is frozenset else self.copy(),
    "issubset": lambda tracer, self, other: tracer.constant(_is_subset(tracer, self, other)),
    "issuperset": lambda tracer, self, other: tracer.constant(_is_superset(tracer, self, other)),
    "isdisjoint": lambda tracer, self, other: tracer.constant(_is_disjoint(tracer, self, other)),
    "__len__": lambda tracer, self: tracer.constant(len(self.entries)),
    "__iter__": lambda tracer, self: tracer.python.iterator(self),
    "__contains__": lambda tracer, self, item: tracer.constant(self.contains(tracer, item)),
}
COMPARISONS = ("__le__", "__ge__", "__lt__", "__gt__", "__eq__", "__ne__")
OPERATORS: dict[str, Callable[..., Value | None]] = {
    "__or__": _operation("union"),
    "__and__": _operation("intersection"),
    "__sub__": _operation("difference"),
    "__xor__": _operation("symmetric_difference"),
    "__ior__": _operator("update"),
    "__iand__": _operator("intersection_update"),
    "__isub__": _operator("difference_update"),
    "__ixor__": _operator("symmetric_difference_update"),
    "__le__": lambda tracer, self, other: tracer.constant(_is_subset(tracer, self, other)),
    "__ge__": lambda tracer, self, other: tracer.constant(_is_superset(tracer, self, other)),
    "__lt__": lambda tracer, self, other: tracer.constant(self.entries.keys() < other.entries.keys()),
    "__gt__": lambda tracer, self, other: tracer.constant(self.entries.keys() > other.entries.keys()),
    "__eq__": lambda tracer, self, other: tracer.constant(self.entries.keys() == other.entries.keys()),
    "__ne__": lambda tracer, self, other: tracer.constant(self.entries.keys() != other.entries.keys()),
}
