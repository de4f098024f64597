"""A group: items that become one kernel, with their common loop nest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping

import attrs

from armature.lower.data import ExternCall, Load, Node, Reduce, Store
from armature.lower.index import Index, Var, substitute, variables
from armature.schedule.axes import has_product, is_order_sensitive
from armature.schedule.normalise import Item
from armature.schedule.score import size
from armature.schedule.walk import operands

Where = tuple[Index, ...]
Accesses = dict[Where, None]  # an ordered set: the same in every process


@attrs.define(eq=False)
class Member:
    """An item of a group, with its variables expressed in the group's nest. `at_inner`: it stores at each inner
    point."""

    item: Item
    changes: dict[Var, Index]
    at_inner: bool = False


@attrs.define(eq=False)
class Group:
    """Items over one nest, in the order of their numbers.

    stores, loads: where each buffer is touched, in the group's variables; a buffer that nobody outside needs is dropped
    from both. known_after: passes after which the value of a stored buffer is known. passes: their number.
    """

    members: list[Member]
    outer: tuple[Var, ...]
    inner: tuple[Var, ...]
    stores: dict[str, Accesses]
    loads: dict[str, Accesses]
    weight: int
    solo: bool = False  # never joined: extern calls, scatters
    positions: bool = False  # has a scan or a reduction that returns a position
    product: bool = False  # has a product of matrices
    extern: ExternCall | None = None
    known_after: dict[str, int] = attrs.field(factory=dict)
    passes: int = 1
    sums: tuple[str, ...] = ()  # buffers that it adds to, from zero: sums across its outer loop `within`
    within: Var | None = None

    @property
    def nest(self) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
        """(outer, inner)."""
        return self.outer, self.inner

    @property
    def is_scalar(self) -> bool:
        """True for loops of one point."""
        return not self.outer and not self.inner and not self.solo

    def change(self, outer: tuple[Var, ...], inner: tuple[Var, ...], changes: Mapping[Var, Index]) -> None:
        """Rewrite everything in the variables of another nest. Pointwise members become inner ones of a reduction."""
        if changes:
            for table in (self.stores, self.loads):
                for name, places in table.items():
                    table[name] = {tuple(substitute(i, changes) for i in place): None for place in places}
            deeper = frozenset(inner)
            for member in self.members:
                member.changes = {v: substitute(i, changes) for v, i in member.changes.items()}
                member.at_inner = at_inner(member, deeper)
        self.outer, self.inner = outer, inner

    def absorb(self, other: Group) -> None:
        """Take over the members of a group with the same nest."""
        ordered = self.members[-1].item.number < other.members[0].item.number
        self.members += other.members
        if not ordered:
            self.members.sort(key=lambda m: m.item.number)
        for mine, theirs in ((self.stores, other.stores), (self.loads, other.loads)):
            for name, places in theirs.items():
                mine.setdefault(name, {}).update(places)
        self.weight += other.weight
        self.positions = self.positions or other.positions
        self.product = self.product or other.product

    def forget(self, name: str) -> None:
        """Drop a buffer that only this group touches."""
        self.stores.pop(name, None)
        self.loads.pop(name, None)


def at_inner(member: Member, inner: frozenset[Var]) -> bool:
    """Whether a member stores at each inner point: a pointwise one that runs over inner variables."""
    return not member.item.inner and any(not inner.isdisjoint(variables(i)) for i in member.changes.values())


def group_of_item(item: Item) -> Group:
    """A group of one."""
    stores: dict[str, Accesses] = {}
    loads: dict[str, Accesses] = {}
    solo = False
    for store in item.stores:
        stores.setdefault(store.buffer, {})[store.index] = None
        solo = solo or store.atomic or bool(store.indirect)
    for load in item.loads:
        loads.setdefault(load.buffer, {})[load.index] = None
    changes: dict[Var, Index] = {v: v for v in (*item.outer, *item.inner)}
    members = [Member(item, changes, at_inner=bool(item.scanned))]
    outer = tuple(v for v in item.outer if v not in item.scanned)
    positions = is_order_sensitive(item.order)
    group = Group(members, outer, item.inner or item.scanned, stores, loads, size(item.order), solo, positions)
    group.passes = add_levels(members, group.known_after, 1)
    group.product = is_product(item)
    return group


def loads_of(members: Iterable[Member]) -> dict[str, Accesses]:
    """Where members load from each buffer, in their group's variables."""
    return _accesses((member, load) for member in members for load in member.item.loads)


def stores_of(members: Iterable[Member]) -> dict[str, Accesses]:
    """Where members store to each buffer, in their group's variables."""
    return _accesses((member, store) for member in members for store in member.item.stores)


def _accesses(each: Iterable[tuple[Member, Load | Store]]) -> dict[str, Accesses]:
    found: dict[str, Accesses] = {}
    for member, access in each:
        found.setdefault(access.buffer, {})[tuple(substitute(i, member.changes) for i in access.index)] = None
    return found


def is_product(item: Item) -> bool:
    """Whether it computes a product of matrices."""
    return has_product(item.order)


def group_of_extern(call: ExternCall) -> Group:
    """A group that is one extern call."""
    return Group([], (), (), {}, {}, 0, solo=True, extern=call)


def add_levels(members: Iterable[Member], known: MutableMapping[str, int], passes: int) -> int:
    """Add to `known`, for each buffer that the members store, the number of passes after which its value is known.

    Returns the total number of passes, `passes` at least.
    """
    for member in members:
        level: dict[Node, int] = {}
        for node in member.item.order:
            found = max((level[child] for child in operands(node)), default=0)
            if isinstance(node, Reduce):
                found += 1
                passes = max(passes, found)
            if isinstance(node, Load):
                found = max(found, known.get(node.buffer, 0))
            level[node] = found
        for store in member.item.stores:
            known[store.buffer] = level[store.value]
            if member.at_inner:
                passes = max(passes, level[store.value] + 1)
    return passes
