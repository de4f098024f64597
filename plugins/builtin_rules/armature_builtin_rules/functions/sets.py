"""Sets and frozen sets, and set operations, which views of dicts share.

The keys of the members are in a real set (`SetValue.table`), on which the program's operations are repeated, so it
iterates in the same order as CPython's.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar

import attrs

from armature.plugin_api import (
    COLLECTION_SLOTS,
    Args,
    Call,
    ContainerValue,
    Rebuilding,
    Source,
    Steps,
    Tracing,
    TupleValue,
    UserRaised,
    Value,
    ValueType,
    Walk,
    Write,
    derives,
    end_lookup,
    handles,
    has_layout,
    is_by_address,
    layout,
    looked_up,
    method_of,
    native,
    raise_lacking,
    same_members,
)
from armature_builtin_rules.functions.targets import own_methods

Members = set[Hashable] | frozenset[Hashable]
Make = Callable[[Sequence[Hashable]], AbstractSet[Hashable]]  # makes a set of items
TAKES_ALL = ("union", "difference", "symmetric_difference")  # consume all members of any operand
GIVING = (
    "union", "intersection", "difference", "symmetric_difference", "issubset", "issuperset", "isdisjoint",
)  # fmt: skip
CHANGING = ("intersection_update", "difference_update", "symmetric_difference_update")
VIEWS: tuple[type, ...] = (type({}.keys()), type({}.items()))  # set-like views
BINARY = {"and": operator.and_, "or": operator.or_, "sub": operator.sub, "xor": operator.xor}
COMPARING = {f"__{name}__": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
# Maps an operator's method to its function, and to whether the object is the right operand.
OPERATORS: dict[str, tuple[Callable[[object, object], object], bool]] = {
    **{f"__{name}__": (function, False) for name, function in BINARY.items()},
    **{f"__r{name}__": (function, True) for name, function in BINARY.items()},
    **{name: (function, False) for name, function in COMPARING.items()},
}
IN_PLACE: dict[str, str] = {
    "__ior__": "update",
    "__iand__": "intersection_update",
    "__isub__": "difference_update",
    "__ixor__": "symmetric_difference_update",
}


def with_room(slots: int, items: Sequence[Hashable]) -> set[Hashable]:
    """A set with at least this many slots in its hash table. More slots mean fewer collisions."""
    more = [object() for _ in range(slots // 2 - 1 - len(items))]
    made: set[Hashable] = set(dict.fromkeys([*items, *more]))
    made.difference_update(more)
    return made


# Ways to make a set that leaves the frame. Its order depends on the size of its hash table, and so on how it was made.
CONSTRUCTORS: dict[type, tuple[Make, ...]] = {
    set: (set, *(functools.partial(with_room, 2**power) for power in range(3, 12))),
    frozenset: (frozenset, lambda items: frozenset(dict.fromkeys(items)), lambda items: frozenset(set(items))),
}


class SetLike(ContainerValue):
    """A value that takes part in set operations."""

    def as_operand(self, tracer: Tracing) -> Operand:
        """The value as an operand of a set operation."""
        raise NotImplementedError(type(self).__name__)


@attrs.frozen(eq=False)
class Operand:
    """An operand of a set operation.

    entries: the members by key. table: the keys in an object that CPython iterates in the same order as the iterable.
    value: the iterable, or its members. order_known: whether that order is.
    """

    entries: Mapping[Hashable, Value]
    table: Iterable[Hashable]
    value: Value
    order_known: bool = True


@attrs.define(eq=False)
class SetValue(SetLike):
    """A set or frozenset. `entries`: key to member.

    `table`: see above; None if the order is unknown, because a set of the program was changed. `changes`: the
    operations to repeat on the program's set itself, because its order depends on them.
    """

    entries: dict[Hashable, Value]
    kind: type = set
    table: set[Hashable] | frozenset[Hashable] | None = attrs.field(
        default=attrs.Factory(lambda self: self.kind(self.entries), takes_self=True)
    )
    changes: list[Write] = attrs.field(factory=list)
    reshaped: int = 0  # how often members were added or removed
    origin: SetValue | None = None  # for a copy made for a change, the original

    mutable: ClassVar[bool] = True
    slots = COLLECTION_SLOTS | OPERATORS.keys() | IN_PLACE.keys() | {"__hash__"}

    def contents(self) -> object:
        return self.entries

    def shape(self) -> tuple[int, int]:
        return self.reshaped, len(self.entries)

    def python_type(self) -> type:
        return self.kind

    def as_constant(self) -> AbstractSet[object]:
        made: AbstractSet[object] = self.kind(value.as_constant() for value in self.entries.values())
        return made

    def as_operand(self, tracer: Tracing) -> Operand:
        table: Members = self.kind(self.entries) if self.table is None else self.table
        return Operand(self.entries, table, self, self.table is not None)

    def key(self, tracer: Tracing) -> Hashable:
        if self.kind is set:
            raise_lacking(tracer, self, "__hash__")
        return frozenset(self.entries)

    def copy(self) -> SetValue:
        """Another set with the same members."""
        return SetValue(dict(self.entries), self.kind, None if self.table is None else self.table.copy())

    def guard_order(self, tracer: Tracing) -> None:
        """Guard the order of a set of the program, and of its copies."""
        if self.source is None or self.table is None or len(self.entries) < 2:
            return
        tracer.guards.keys(self.source, [self.entries[key].as_constant() for key in self.table])
        places = layout(self.table)
        if places:
            tracer.guards.metadata(self.source, functools.partial(has_layout, places))

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
        """The table, about to be changed by a method; a table of unknown order may be changed in any way."""
        tracer.mutate(self)
        if self.source is not None:
            self.table = None
            self.changes.append(Write(function, (self, *operands)))
        return set(self.entries) if not isinstance(self.table, set) else self.table

    def length(self, tracer: Tracing) -> int:
        return len(self.entries)

    def contains(self, tracer: Tracing, item: Value) -> bool:
        key = looked_up(tracer, lookup_key(tracer, item), self.entries)
        return key in self.entries

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if not isinstance(other, SetValue):
            return None
        if name in IN_PLACE and self.kind is set:
            self.call_method(tracer, IN_PLACE[name], (other,), {})
            return self
        if name in IN_PLACE:
            return None
        function, swapped = OPERATORS[name]
        sides = (other, self) if swapped else (self, other)
        return compute(tracer, function, *(side.as_operand(tracer) for side in sides))

    def rebuild(self, out: Rebuilding) -> None:
        make, order = self.way_to_make(out)
        if make is not set:
            out.null_function(make)
        for key in order:
            out.load(self.entries[key])
        out.build("BUILD_SET" if make is set else "BUILD_TUPLE", len(order))
        if make is not set:
            out.call(1)

    def filling(self, out: Rebuilding) -> Value:
        """The items in an order that reproduces the table's."""
        make, order = self.way_to_make(out)
        if make is not self.kind:
            out.cannot(self)
        return TupleValue([self.entries[key] for key in order])

    def way_to_make(self, out: Rebuilding) -> tuple[Make, list[Hashable]]:
        """A function and items that make a set with the order of the table."""
        if len(self.entries) < 2 or any(map(is_by_address, self.entries)):
            return self.kind, list(self.entries)
        self.guard_order(out.tracer)
        known = out.cannot(self) if self.table is None else list(self.table)
        for make, order in itertools.product(CONSTRUCTORS[self.kind], (known, list(self.entries))):
            if list(make(order)) == known:
                return make, order
        out.cannot(self)

    def fill(self, out: Rebuilding, owner: Value) -> list[Write]:
        return [Write(set.update, (owner, self.filling(out)))] if self.kind is set else []

    def writes(self, out: Rebuilding) -> list[Write]:
        return [
            attrs.evolve(change, operands=tuple(map(unchanged_original, change.operands))) for change in self.changes
        ]


def unchanged_original(operand: Value) -> Value:
    """The program's set itself, instead of a copy made for a change to another one, if it does not change."""
    origin = operand.origin if isinstance(operand, SetValue) else None
    return operand if origin is None or origin.source is None or origin.changes else origin


def operand(tracer: Tracing, iterable: Value) -> Operand:
    """Any iterable as an operand of a set operation."""
    iterable = native_set(iterable)
    return iterable.as_operand(tracer) if isinstance(iterable, SetLike) else listed(tracer, iterable)


def listed(tracer: Tracing, iterable: Value) -> Operand:
    """An operand for an iterable that is not a set."""
    found: dict[Hashable, Value] = {}
    for item in one_by_one(tracer, iterable):
        found.setdefault(item.key(tracer), item)
    # CPython reserves room for all keys of a dict at once.
    table = dict.fromkeys(found) if iterable.python_type() is dict else list(found)
    return Operand(found, table, TupleValue(list(found.values())))


def native_set(value: Value) -> Value:
    """The builtin part of a set of a derived class: C code reads its members without iterating."""
    own = native(value)
    return own if isinstance(own, SetValue) else value


def one_by_one(tracer: Tracing, iterable: Value) -> Iterable[Value]:
    """The items of an iterable, fetched lazily unless all are known."""
    return tracer.unpack(iterable) if iterable.plain_items else iterable.stream(tracer)


def compute(tracer: Tracing, function: Callable[..., object], *operands: Operand) -> Value:
    """Apply a function to the tables of sets."""
    made = function(*(operand.table for operand in operands))
    if not isinstance(made, (set, frozenset)):
        return tracer.constant(made)
    rely_on_orders(tracer, operands)
    known = all(operand.order_known for operand in operands)
    return SetValue(members(made, *(operand.entries for operand in operands)), type(made), made if known else None)


def members(keys: Iterable[Hashable], *tables: Mapping[Hashable, Value]) -> dict[Hashable, Value]:
    """The members of a set of keys made from other sets. Of equal keys, such as 2 and 2.0, the set's own key decides
    which one it is."""
    by_key: dict[Hashable, Value] = {}
    by_id: dict[int, Value] = {}
    for key, item in itertools.chain.from_iterable(table.items() for table in tables):
        by_key.setdefault(key, item)
        by_id.setdefault(id(key), item)
    return {key: by_id.get(id(key)) or by_key[key] for key in keys}


def rely_on_orders(tracer: Tracing, operands: Iterable[Operand]) -> None:
    """Guard the orders of the program's sets from which another one was made."""
    for operand in operands:
        if isinstance(operand.value, SetValue):
            operand.value.guard_order(tracer)


def make_from(tracer: Tracing, iterable: Value, kind: type) -> Value:
    """`kind(iterable)`."""
    if kind is frozenset and isinstance(iterable, SetValue) and iterable.kind is frozenset:
        return iterable
    return compute(tracer, kind, operand(tracer, iterable))


def in_any_order(tracer: Tracing, iterable: Value) -> list[Value]:
    """The items of an iterable for a function whose result does not depend on their order, for a set of ints or
    strings."""
    if isinstance(iterable, SetValue) and {type(key) for key in iterable.entries} in ({int}, {str}):
        return list(iterable.entries.values())
    return tracer.unpack(iterable)


def operands_of(tracer: Tracing, name: str, others: Args) -> list[Operand]:
    """The operands of a method. Breaks the graph for other operands than lists and sets, where CPython may stop in the
    middle, or raise after it has changed the set."""
    if name in TAKES_ALL:
        return [operand(tracer, other) for other in others]
    try:
        given = [operand(tracer, other) for other in others if native_set(other).plain_items]
        if name == "isdisjoint" and any(map(derives, others)):  # it calls their `__iter__`
            given = []
    except UserRaised:  # a member is not hashable
        given = []
    if len(given) < len(others):
        tracer.graph_break("method-of-value", name=name, type="a set, for other than lists and sets")
    return given


@method_of(SetValue, set.add)
def add(tracer: Tracing, self: SetValue, item: Value) -> None:
    """Add a member."""
    key = looked_up(tracer, item.key(tracer), self.entries)
    self.change(tracer, set.add, item).add(key)
    self.reshaped += key not in self.entries
    self.entries.setdefault(key, item)
    end_lookup(key)


def lookup_key(tracer: Tracing, item: Value) -> Hashable:
    """The key under which a set looks up an item: a set, which is unhashable, is looked up as a frozenset."""
    try:
        return item.key(tracer)
    except UserRaised:
        held = native_set(item)
        if not isinstance(held, SetValue) or held.kind is not set:
            raise
        return frozenset(held.entries)


@method_of(SetValue, set.discard)
def discard(tracer: Tracing, self: SetValue, item: Value) -> None:
    """Remove a member if it is present."""
    key = looked_up(tracer, lookup_key(tracer, item), self.entries)
    self.change(tracer, set.discard, item).discard(key)
    self.reshaped += key in self.entries
    self.entries.pop(key, None)


@method_of(SetValue, set.remove)
def remove(tracer: Tracing, self: SetValue, item: Value) -> None:
    """Remove a member; KeyError if it is missing."""
    if not self.contains(tracer, item):
        tracer.raise_value(KeyError, (item,))
    discard(tracer, self, item)


@method_of(SetValue, set.pop)
def pop(tracer: Tracing, self: SetValue) -> Value:
    """Remove and return the member that comes first in CPython."""
    if not self.entries:
        tracer.raise_error(KeyError, "pop from an empty set")
    if self.source is not None and len(self.entries) > 1:  # it continues where the previous pop ended
        tracer.graph_break("set-pop")
    self.ordered(tracer)
    self.reshaped += 1
    return self.entries.pop(self.change(tracer, set.pop).pop())


@method_of(SetValue, set.clear)
def clear(tracer: Tracing, self: SetValue) -> None:
    """Remove all members."""
    self.change(tracer, set.clear).clear()
    self.reshaped += bool(self.entries)
    self.entries.clear()


@method_of(SetValue, set.__init__)
def initialise(tracer: Tracing, self: SetValue, *items: Value) -> None:
    """Fill the set, or an object of a derived class, as `set.__init__` does."""
    if self.entries:
        clear(tracer, self)
    update(tracer, self, *items)


@method_of(SetValue, set.update)
def update(tracer: Tracing, self: SetValue, *others: Value) -> None:
    """`self.update(*others)`. Operands that CPython adds at once have hashable members; others are added one by one."""
    for other in map(native_set, others):
        if isinstance(other, SetValue) or other.python_type() is dict:
            change_by(tracer, "update", self, (other,))
            continue
        for item in one_by_one(tracer, other):
            add(tracer, self, item)


@handles(*(getattr(kind, name) for kind in (set, frozenset) for name in GIVING), *own_methods("isdisjoint", *VIEWS))
def combined(call: Call, owner: Value, *others: Value) -> Value | None:
    """A method that returns another set, or a bool."""
    if not isinstance(owner, SetLike):
        return None
    name = call.fn.__name__
    method = getattr(owner.python_type(), name)
    return compute(call.tracing, method, owner.as_operand(call.tracing), *operands_of(call.tracing, name, others))


@handles(*(getattr(set, name) for name in CHANGING))
def changed(call: Call, owner: Value, *others: Value) -> Value | None:
    """A method that changes the set by other iterables."""
    if not isinstance(owner, SetValue):
        return None
    change_by(call.tracing, call.fn.__name__, owner, others)
    return call.constant(None)


def change_by(tracer: Tracing, name: str, self: SetValue, others: Args) -> None:
    """Carry out a method that changes the set."""
    given = operands_of(tracer, name, others)
    table = self.change(tracer, getattr(set, name), *(snapshot(operand.value, self) for operand in given))
    if self.table is not None:
        rely_on_orders(tracer, given)
        self.table = table if all(operand.order_known for operand in given) else None
    getattr(table, name)(*(operand.table for operand in given))
    changed = members(table, self.entries, *(operand.entries for operand in given))
    self.reshaped += changed.keys() != self.entries.keys()
    self.entries = changed


def snapshot(value: Value, changed: SetValue) -> Value:
    """An operand of a change in its present state, because the change is repeated after the graph has run."""
    if not isinstance(value, SetValue) or value is changed:
        return value
    made = value.copy()
    made.origin = value
    return made


@method_of(SetValue, set.copy, frozenset.copy)
def copy(tracer: Tracing, self: SetValue) -> Value:
    """Another set with the same members; a frozenset itself."""
    return self if self.kind is frozenset else self.copy()


@handles(set, frozenset)
def make_set(call: Call, items: Value | None = None) -> Value:
    """A new set."""
    kind = call.fn if isinstance(call.fn, type) else set
    return SetValue({}, kind) if items is None else make_from(call.tracing, items, kind)


def of_program(obj: Members, source: Source, tracer: Tracing) -> Value | None:
    """A set of constants of the program; other sets are opaque objects."""
    if not all(map(tracer.types.is_atom, obj)):
        return None
    tracer.guards.equal(source, type(obj)(obj))
    return SetValue({item: tracer.as_value(item) for item in obj}, type(obj), obj, source=source)


def fresh(obj: Members, tracer: Tracing) -> Value:
    """A set that tracing itself has made."""
    items = [tracer.as_value(item) for item in obj]
    return SetValue({item.key(tracer): item for item in items}, type(obj), obj.copy())


def base_of_set(obj: Members, kind: type, source: Source, owner: Value, tracer: Tracing) -> Value:
    """The set inside an object of a derived class."""
    held = frozenset(obj)  # a copy, which calls no member's `__hash__`
    tracer.guards.metadata(source, functools.partial(same_members, held))
    values = map(tracer.as_value, held)
    before = tracer.effects.count
    entries = {value.key(tracer): value for value in values}
    if tracer.effects.count != before:  # Python stores the hashes, and calls no `__hash__`
        tracer.graph_break("set-hash-effects")
    return SetValue(entries, kind, None, source=source)


VALUE_TYPES = tuple(ValueType(kind, of_program, fresh=fresh, base=base_of_set) for kind in (set, frozenset))
