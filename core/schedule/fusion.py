"""Chooses the loops that become one kernel: greedily, largest saving first, and only if the result stays the same.

Every item starts as a group of its own. An item that stores more than it loads is joined with its only reader. Then,
going through the items in order, each group is joined with those that touch the same buffers over the same points:
first where one produces a value for the other, which then need not be stored, later where both read the same. After a
join, each value is still read where it was written, nothing is overwritten before it is read, there is no cycle through
other groups, and the kernel stays within the back end's limits.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import TYPE_CHECKING

import attrs

from armature import interrupts
from armature.errors import InvariantError
from armature.lower.data import Buffer, ExternCall
from armature.lower.features import Features
from armature.lower.index import (
    Index,
    Sum,
    Var,
    bounds,
    contiguous_strides,
    linear,
    mul,
    substitute,
    variables,
)  # fmt: skip
from armature.schedule.align import Alignment, align
from armature.schedule.axes import is_order_sensitive
from armature.schedule.dependencies import Dependencies, Unit
from armature.schedule.group import (
    Accesses,
    Group,
    Member,
    Where,
    add_levels,
    at_inner,
    group_of_extern,
    group_of_item,
)  # fmt: skip
from armature.schedule.order import Order
from armature.schedule.rules import FusionRules
from armature.schedule.score import (
    MOST_BUFFERS,
    MOST_SCALARS,
    NEIGHBOURS,
    ROUNDS,
    SCALAR_NODES,
    SMALL_KERNEL,
    bytes_of,
    points,
)

if TYPE_CHECKING:
    from armature.context import CompileContext

_SCALARS = ""  # pseudo-buffer that all loops of one point share


@attrs.define(eq=False)
class Fusion:
    """The state of fusion. groups: for each unit, the group that initially contains only it."""

    deps: Dependencies
    buffers: dict[str, Buffer]
    ctx: CompileContext
    order: Order[Group]
    groups: list[Group]
    rules: FusionRules
    touching: dict[str, list[Group]] = attrs.field(factory=dict)
    bytes: dict[str, int] = attrs.field(factory=dict)

    def neighbours(self, group: Group, names: Iterable[str]) -> list[Group]:
        """Groups that touch the same buffers, ordered by shared bytes or by what plugins' rules say, largest first."""
        shared: dict[Group, float] = {}
        here = self.order.place[group]
        for name in names:
            found = list(dict.fromkeys(self.order.find(g) for g in self.touching.get(name, ())))
            self.touching[name] = found
            if len(found) > NEIGHBOURS:
                nearest = nsmallest(NEIGHBOURS, found, key=lambda g: abs(self.order.place[g] - here))
                found = list(dict.fromkeys((*nearest, *(g for g in found if name in g.stores))))
            for other in found:
                if other is not group and not other.solo:
                    handed = name in other.stores or name in group.stores
                    shared[other] = shared.get(other, 0) + self.bytes_of(name) * (2 if handed else 1)
        if self.rules.rules:
            shared = {other: self.rules.saves(group, other, self.bytes_of) for other in shared}
        return sorted(shared, key=lambda g: (-shared[g], -self.order.place[g]))

    def names_of(self, group: Group) -> tuple[str, ...]:
        """The buffers that the group touches, and the pseudo-buffer of groups of one point."""
        return tuple(dict.fromkeys((*group.loads, *group.stores, *((_SCALARS,) if group.is_scalar else ()))))

    def bytes_of(self, name: str) -> int:
        if name not in self.bytes:
            self.bytes[name] = 0 if name == _SCALARS else bytes_of(self.buffers[name])
        return self.bytes[name]

    def visit(self, group: Group, handed: bool) -> None:
        """Join the group with its neighbours for as long as one fits. `handed`: only if one of the two stores what the
        other loads."""
        if group.solo:
            return
        refused: set[Group] = set()
        while True:
            for other in self.neighbours(group, self.names_of(group)):
                if other in refused or (handed and not hands_over(group, other)):
                    continue
                joined = self.try_join(group, other)
                if joined is not None:
                    group = joined
                    break
                refused.add(other)
            else:
                return

    def visit_reader(self, group: Group) -> None:
        """Join a group that stores more than it loads with the only reader of that, before another group joins it: for
        products of elements this is their sum, not what made one of the factors."""
        stored = sum(self.bytes_of(name) for name in group.stores)
        if group.solo or stored <= sum(self.bytes_of(name) for name in group.loads):
            return
        readers = {self.order.find(self.groups[k]) for name in group.stores for k in self.deps.readers.get(name, ())}
        readers.discard(group)
        if len(readers) == 1 and not any(self.is_needed(name, group, *readers) for name in group.stores):
            (reader,) = readers
            if not reader.solo:
                self.try_join(group, reader)

    def try_join(self, one: Group, other: Group) -> Group | None:
        """The joined group, or None if the two can't or should not be one kernel."""
        keep, gone = (one, other) if len(one.members) >= len(other.members) else (other, one)
        if not all(rule(self, keep, gone) for rule in PAIR_RULES):
            return None
        found = self.alignment(keep, gone)
        if found is None or not all(rule(self, keep, gone, found) for rule in NEST_RULES):
            return None
        handed = [n for n in gone.stores if n in keep.loads] + [n for n in keep.stores if n in gone.loads]
        on_top = adds_on_top(keep, gone)
        keep.change(found.outer, found.inner, found.left)
        gone.change(found.outer, found.inner, found.right)
        keep.absorb(gone)
        if on_top:
            keep.passes = add_levels(gone.members, keep.known_after, keep.passes)
        elif found.inner:
            keep.known_after = {}
            keep.passes = add_levels(keep.members, keep.known_after, 1)
        self.order.join(keep, gone, keep)
        for name in handed:
            if not self.is_needed(name, keep):
                keep.forget(name)
        return keep

    def is_needed(self, name: str, *groups: Group) -> bool:
        """Whether the buffer is needed outside of these groups."""
        if name in self.deps.wanted or name in self.deps.changed:
            return True
        return any(self.order.find(self.groups[k]) not in groups for k in self.deps.readers.get(name, ()))

    def alignment(self, one: Group, other: Group) -> Alignment | None:
        """How the two nests line up such that each value is read where it was written."""
        if one.is_scalar and other.is_scalar:
            nothing = Alignment((), (), {}, {})
            return nothing if self.same_places(one, other, nothing) else None
        links = [n for n in (*other.loads, *other.stores) if n in one.stores]
        links += [n for n in other.stores if n in one.loads]
        links += [n for n in other.loads if n in one.loads]
        links.sort(key=lambda n: -len(self.buffers[n].shape))
        for name in list(dict.fromkeys(links))[:4]:
            left = next(iter(one.stores.get(name) or one.loads[name]))
            right = next(iter(other.stores.get(name) or other.loads[name]))
            if name in one.stores and name in other.stores:  # two parts of one buffer
                left, right = from_start(left), from_start(right)
            found = align(one.nest, other.nest, left, right, self.buffers[name].shape)
            if found is not None and self.same_places(one, other, found):
                return found
        return None

    def same_places(self, one: Group, other: Group, found: Alignment) -> bool:
        """Each buffer that one side stores and the other touches is touched at the same place by both."""
        for name in dict.fromkeys((*other.stores, *other.loads)):
            if name in one.stores and name in other.stores:
                parts = (moved(one.stores[name], found.left), moved(other.stores[name], found.right))
                if name in one.loads or name in other.loads or not are_disjoint(*parts):
                    return False
                continue
            if name not in one.stores and not (name in other.stores and name in one.loads):
                continue
            in_one = {**one.stores.get(name, {}), **one.loads.get(name, {})}
            in_other = {**other.stores.get(name, {}), **other.loads.get(name, {})}
            if len({*moved(in_one, found.left), *moved(in_other, found.right)}) > 1:
                return False
        return True

    def features(self, device_type: str) -> Features:
        backend = self.ctx.tables.device_backend(device_type)
        if backend is None:
            raise InvariantError(what="a loop for a device without a back end", details=device_type)
        return backend.features

    def stores_inside(self, keep: Group, gone: Group, found: Alignment) -> bool:
        """Whether the joined kernel would have to store at each inner point."""
        deeper = frozenset(found.inner)
        for group, changes in ((keep, found.left), (gone, found.right)):
            for name, places in group.stores.items():
                inside = any(variables(i) & deeper for place in moved(places, changes) for i in place)
                if inside and self.is_needed(name, keep, gone):
                    return True
        return False


def around_a_product(fusion: Fusion, one: Group, other: Group) -> bool:
    """If one of them is a matrix product, the other must be pointwise, and read its result or make what is computed of
    that: only such kernels can use matrix units, or a library call and a loop. (`after_the_product` keeps what makes
    a factor apart.)"""
    if one.product == other.product:
        return not one.product
    product, rest = (one, other) if one.product else (other, one)
    return not rest.inner and hands_over(product, rest)


def on_one_device(fusion: Fusion, one: Group, other: Group) -> bool:
    """Both run on the same device."""
    return one.members[0].item.device == other.members[0].item.device


def small_enough(fusion: Fusion, one: Group, other: Group) -> bool:
    """Whether the joined kernel is short enough and has few enough buffers. Loops of one point cost only their launch,
    so such a kernel may be longer, with as many buffers as the back end allows."""
    nodes, buffers = fusion.ctx.config.max_kernel_nodes, MOST_BUFFERS
    if one.is_scalar and other.is_scalar:
        nodes *= SCALAR_NODES
        buffers = max(buffers, min(MOST_SCALARS, fusion.features(one.members[0].item.device.type).batch))
    touched = sum(len(group.loads) + len(group.stores) for group in (one, other))
    return one.weight + other.weight <= nodes and touched <= buffers


def worth(fusion: Fusion, one: Group, other: Group) -> bool:
    """False for kernels that share next to nothing."""
    if one.is_scalar and other.is_scalar:
        return True
    small, large = sorted((one, other), key=lambda g: len(g.loads) + len(g.stores))
    if any(n in large.stores for n in (*small.stores, *small.loads)) or any(n in large.loads for n in small.stores):
        return True
    common = sum(fusion.bytes_of(n) for n in small.loads if n in large.loads)
    least = min(sum(fusion.bytes_of(n) for n in (*g.loads, *g.stores)) for g in (one, other))
    return common * 8 >= least


def by_plugins(fusion: Fusion, one: Group, other: Group) -> bool:
    """No rule of a plugin keeps them apart."""
    return not fusion.rules.rules or fusion.rules.saves(one, other, fusion.bytes_of) >= 0


def in_order(fusion: Fusion, one: Group, other: Group) -> bool:
    """No third group has to run between the two."""
    return fusion.order.can_join(one, other)


def touch_no_shared_memory(fusion: Fusion, one: Group, other: Group) -> bool:
    """Neither writes to memory that the other touches under another name."""
    meet = fusion.deps.meet
    return not (meet(one.stores, (*other.loads, *other.stores)) or meet(other.stores, one.loads))


def within_passes(fusion: Fusion, keep: Group, gone: Group, found: Alignment) -> bool:
    """The kernel makes no more passes over its inner loop than the back end supports."""
    if not found.inner:
        return True
    deeper = frozenset(found.inner)
    trial = [moved_member(m, found.right, deeper) for m in gone.members]
    if adds_on_top(keep, gone):
        passes = add_levels(trial, ChainMap({}, keep.known_after), keep.passes)
    else:
        trial += [moved_member(m, found.left, deeper) for m in keep.members]
        trial.sort(key=lambda m: m.item.number)
        passes = add_levels(trial, {}, 1)
    return passes <= fusion.features(keep.members[0].item.device.type).max_passes


def in_order_of_positions(fusion: Fusion, keep: Group, gone: Group, found: Alignment) -> bool:
    """A reduction that returns a position runs over its variables in its own order, and so does a scan."""
    if not found.inner or not (keep.positions or gone.positions):
        return True
    deeper = frozenset(found.inner)
    every = [moved_member(m, found.right, deeper) for m in gone.members]
    every += [moved_member(m, found.left, deeper) for m in keep.members]
    return keeps_positions(every, found.inner)


def after_the_product(fusion: Fusion, keep: Group, gone: Group, found: Alignment) -> bool:
    """What follows a product of matrices runs over the elements of its result, not over its inner loop."""
    if not (keep.product or gone.product):
        return True
    deeper = frozenset(found.inner)
    every = [moved_member(m, found.right, deeper) for m in gone.members]
    every += [moved_member(m, found.left, deeper) for m in keep.members]
    return not any(member.at_inner for member in every)


def keeps_busy(fusion: Fusion, keep: Group, gone: Group, found: Alignment) -> bool:
    """The kernel does not store at inner points if it is large but has few outer points, which would leave most of the
    device idle."""
    features = fusion.features(keep.members[0].item.device.type)
    large = bool(found.inner) and points((*found.outer, *found.inner)) > SMALL_KERNEL
    idle = large and points(found.outer) < features.parallel
    return not (idle and fusion.stores_inside(keep, gone, found))


def hands_over(one: Group, other: Group) -> bool:
    """Whether one of the two stores what the other loads, or both run at one point."""
    if one.is_scalar and other.is_scalar:
        return True
    return any(n in other.loads for n in one.stores) or any(n in one.loads for n in other.stores)


# All must hold for two groups to become one. Rules on pairs of groups, the fastest first:
PairRule = Callable[[Fusion, Group, Group], bool]
PAIR_RULES: tuple[PairRule, ...] = (
    on_one_device,
    around_a_product,
    small_enough,
    worth,
    in_order,
    touch_no_shared_memory,
    by_plugins,
)
# Rules on two groups, `keep` and `gone`, and their common nest:
NestRule = Callable[[Fusion, Group, Group, Alignment], bool]
NEST_RULES: tuple[NestRule, ...] = (within_passes, in_order_of_positions, after_the_product, keeps_busy)


def adds_on_top(keep: Group, gone: Group) -> bool:
    """True if the known passes of `keep` stay valid with `gone` added."""
    return bool(keep.inner) and keep.members[-1].item.number < gone.members[0].item.number


def moved_member(member: Member, changes: Mapping[Var, Index], inner: frozenset[Var]) -> Member:
    """The member, moved to another nest."""
    new = Member(member.item, {v: substitute(i, changes) for v, i in member.changes.items()})
    new.at_inner = at_inner(new, inner)
    return new


def moved(places: Accesses, changes: Mapping[Var, Index]) -> Iterable[Where]:
    """The places in the variables of another nest."""
    if not changes:
        return places
    return [tuple(substitute(i, changes) for i in place) for place in places]


def from_start(place: Where) -> Where:
    """The place relative to the first element of its part of the buffer."""
    return tuple(attrs.evolve(i, const=0) if isinstance(i, Sum) and len(i.terms) > 1 else _bare(i) for i in place)


def _bare(index: Index) -> Index:
    """An index without its constant part: the variable for `variable + constant`, 0 for a constant."""
    if isinstance(index, Sum):
        factor, step = index.terms[0]
        return mul(factor, step)
    return 0 if isinstance(index, int) else index


def are_disjoint(left: Iterable[Where], right: Iterable[Where]) -> bool:
    """True if no element can be in both: along some axis the ranges are disjoint."""
    right = list(right)
    return all(any(_before(a, b) or _before(b, a) for a, b in zip(p, q, strict=True)) for p in left for q in right)


def _before(one: Index, other: Index) -> bool:
    high, low = bounds(one)[1], bounds(other)[0]
    return high is not None and low is not None and high < low


def keeps_positions(members: Iterable[Member], inner: tuple[Var, ...]) -> bool:
    """True unless a scan or a reduction that returns a position would run over its variables in another order than its
    own."""
    whole = linear(inner, contiguous_strides([v.extent for v in inner]))
    for member in members:
        item = member.item
        if is_order_sensitive(item.order):
            walked = item.inner or item.scanned
            own = linear(walked, contiguous_strides([v.extent for v in walked]))
            if substitute(own, member.changes) != whole:
                return False
    return True


def fuse(units: Sequence[Unit], deps: Dependencies, buffers: dict[str, Buffer], ctx: CompileContext) -> Fusion:
    """Groups, in execution order by `order.groups()`. `deps` was computed for `units`; numbers of items are their
    positions."""
    groups = [group_of_extern(u) if isinstance(u, ExternCall) else group_of_item(u) for u in units]
    order = Order((g, frozenset(groups[n] for n in deps.before[k])) for k, g in enumerate(groups))
    work = Fusion(deps, buffers, ctx, order, groups, FusionRules.of(ctx))
    if not ctx.config.fuse:
        return work
    for group in groups:
        for name in work.names_of(group):
            work.touching.setdefault(name, []).append(group)
    for group in groups:
        work.visit_reader(order.find(group))
    for handed in ROUNDS:
        order.close_up()
        for group in order.groups():
            interrupts.check()
            if order.find(group) is group:
                work.visit(group, handed)
    return work
