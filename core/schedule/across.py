"""Sums across the rows of a kernel that runs over the rows: what layer norm's backward needs besides its gradient.

A kernel that reduces each row (its inner loop) and one that sums the same values over all rows would read them twice.
Here the first also adds each row to partial sums, one for some rows (a part) at a time, so that threads share none; the
second then only sums the parts.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping

import attrs
import torch

from armature.lower.data import Buffer, BufferKind, Load, Node, Op, Reduce, Store
from armature.lower.features import AcrossRows
from armature.lower.index import Index, Var, add, contiguous_strides, floordiv, mul, substitute
from armature.schedule.align import Alignment, align
from armature.schedule.fusion import (
    Fusion,
    by_plugins,
    in_order,
    moved_member,
    on_one_device,
    small_enough,
    touch_no_shared_memory,
)  # fmt: skip
from armature.schedule.group import Group, Member, add_levels, loads_of, stores_of
from armature.schedule.normalise import Item
from armature.schedule.score import LONGEST_PART, points, size
from armature.schedule.walk import rename_store, with_operands


@attrs.frozen(eq=False)
class Plan:
    """How sums across rows become part of a kernel. alignment: of the rows' nest with that of the sums, whose outer and
    inner loops change places. outer: the outer loops, the last of which runs over the rows of a part. changes: the
    loops of the alignment that were divided, in these."""

    alignment: Alignment
    outer: tuple[Var, ...]
    changes: Mapping[Var, Index]


def sum_across(fusion: Fusion) -> None:
    """Let kernels over rows make the sums across rows of what they read anyway."""
    for group in fusion.order.groups():
        if not _is_sum(fusion, group):
            continue
        for rows in fusion.neighbours(group, group.loads):
            plan = _plan(fusion, rows, group)
            if plan is not None:
                _Move(fusion, rows, group).run(plan)
                break


def _is_sum(fusion: Fusion, group: Group) -> bool:
    """Whether the group makes sums over its inner loop, of a size that pays."""
    if group.solo or group.product or group.positions or not group.inner or not group.outer or group.sums:
        return False
    if group.passes > 1 or any(not isinstance(v.extent, int) for v in (*group.outer, *group.inner)):
        return False
    reductions = [n for m in group.members for n in m.item.order if isinstance(n, Reduce)]
    limits = _limits(fusion, group)
    plain = all(n.op == "sum" and n.dtype.is_floating_point for n in reductions)
    return plain and limits is not None and points(group.outer) <= limits.most


def _limits(fusion: Fusion, group: Group) -> AcrossRows | None:
    return fusion.features(group.members[0].item.device.type).across


def _goes(member: Member) -> bool:
    """Whether a member of the sums' kernel is computed at each point."""
    return member.at_inner or bool(member.item.inner)


def _plan(fusion: Fusion, rows: Group, sums: Group) -> Plan | None:
    """How the kernel over rows can make the sums; None if it can't, or if that saves little."""
    limits = _limits(fusion, sums)
    if limits is None or not rows.inner or rows.solo or rows.product or rows.positions:
        return None
    if not all(rule(fusion, rows, sums) for rule in (on_one_device, small_enough, by_plugins, touch_no_shared_memory)):
        return None
    known = sum(fusion.bytes_of(n) for n in sums.loads if n in rows.loads or n in rows.stores)
    if known < limits.least or known * 2 < sum(fusion.bytes_of(n) for n in sums.loads):
        return None
    stay = {name for m in sums.members if not _goes(m) for name in m.item.writes}
    if any(load.buffer in stay for m in sums.members if _goes(m) for load in m.item.loads):
        return None
    written = fusion.deps.changed.intersection((*rows.stores, *sums.stores))
    if any(n in rows.loads for n in sums.stores) or not written.isdisjoint(sums.loads):
        return None
    found = _alignment(fusion, rows, sums) if in_order(fusion, rows, sums) else None
    if found is None or not _within_passes(fusion, rows, sums, found):
        return None
    return _divided(found, limits) if rows.within is None else _as_before(found, rows.within)


def _divided(found: Alignment, limits: AcrossRows) -> Plan | None:
    """The plan that divides the outer loop of which the longest parts can be made; None if all would be too short."""
    lengths = {v: _length(v.extent, points(found.outer), limits) for v in reversed(found.outer)}
    row = max(lengths, key=lengths.__getitem__)
    length = lengths[row]
    if not length:
        return None
    part, within = Var(f"{row.name}_part", floordiv(row.extent, length)), Var(f"{row.name}_row", length)
    outer = (*(v for v in found.outer if v is not row), part, within)
    return Plan(found, outer, {row: add(mul(part, length), within)})


def _as_before(found: Alignment, within: Var) -> Plan | None:
    """The plan for a kernel that makes other sums already; None if its rows would have to be divided anew."""
    outer = (*(v for v in found.outer if v is not within), within)
    return Plan(found, outer, {}) if within in found.outer else None


def _alignment(fusion: Fusion, rows: Group, sums: Group) -> Alignment | None:
    """Like `Fusion.alignment`, with the loops of the sums from inside to outside."""
    turned = (sums.inner, sums.outer)
    links = [n for n in sums.loads if n in rows.stores or n in rows.loads]
    links.sort(key=lambda n: -len(fusion.buffers[n].shape))
    for name in links[:4]:
        left = next(iter(rows.stores.get(name) or rows.loads[name]))
        right = next(iter(sums.loads[name]))
        found = align(rows.nest, turned, left, right, fusion.buffers[name].shape)
        if found is not None and found.outer and fusion.same_places(rows, sums, found):
            return found
    return None


def _length(extent: Index, rows: int, limits: AcrossRows) -> int:
    """The longest part of a loop such that there are enough of them in all, and none is shorter; 0 if there is none."""
    if not isinstance(extent, int):
        return 0
    longest = min(extent, LONGEST_PART, rows // limits.parts)
    return next((n for n in range(longest, limits.shortest - 1, -1) if extent % n == 0), 0)


def _within_passes(fusion: Fusion, rows: Group, sums: Group, found: Alignment) -> bool:
    """Whether the kernel makes no more passes over a row than the back end supports."""
    deeper = frozenset(found.inner)
    known = ChainMap({}, rows.known_after)
    passes = add_levels((moved_member(m, found.right, deeper) for m in sums.members if m.at_inner), known, rows.passes)
    last = 1 + max(known.get(load.buffer, 0) for m in sums.members if m.item.inner for load in m.item.loads)
    return max(passes, last) <= fusion.features(rows.members[0].item.device.type).max_passes


@attrs.define(eq=False)
class _Move:
    """Moves what `sums` computes at each point into `rows`, and leaves sums of the parts. place: a part, as the leading
    coordinates of partial sums. over: loops over the parts."""

    fusion: Fusion
    rows: Group
    sums: Group
    place: tuple[Var, ...] = ()
    over: tuple[Var, ...] = ()

    def run(self, plan: Plan) -> None:
        """Change both groups, and their order."""
        rows, sums, found = self.rows, self.sums, plan.alignment
        self.place = plan.outer[:-1]
        self.over = tuple(Var(f"{v.name}_all", v.extent) for v in self.place)
        rows.change(found.outer, found.inner, found.left)
        rows.change(plan.outer, found.inner, plan.changes)
        rows.within = plan.outer[-1]
        changes = {v: substitute(i, plan.changes) for v, i in found.right.items()}
        deeper = frozenset(found.inner)
        gone = [moved_member(m, changes, deeper) for m in sums.members if m.at_inner]
        kept = [m for m in sums.members if not _goes(m)]
        for member in sums.members:
            if member.item.inner:
                parts, total = self.split(moved_member(member, changes, deeper), member)
                gone.append(parts)
                kept.append(total)
        kept.sort(key=lambda m: m.item.number)
        sums.members, sums.inner = kept, self.over
        sums.loads, sums.stores = loads_of(kept), stores_of(kept)
        weight = sum(size(m.item.order) for m in gone)
        rows.absorb(Group(gone, rows.outer, rows.inner, stores_of(gone), loads_of(gone), weight))
        rows.known_after = {}
        rows.passes = add_levels(rows.members, rows.known_after, 1)
        self.fusion.order.put_before(rows, sums)

    def split(self, moved: Member, member: Member) -> tuple[Member, Member]:
        """What makes partial sums in the kernel over rows, and what sums them in place of the member."""
        item, buffers = member.item, self.fusion.buffers
        number = len(self.fusion.groups)
        self.fusion.groups.append(self.rows)
        stores: list[Store] = []
        table: dict[Node, Node] = {}
        for node in item.order:
            table[node] = with_operands(node, table)
            if isinstance(node, Reduce):
                held = torch.promote_types(node.dtype, torch.float32)
                name = f"{item.name}_parts{len(stores)}"
                shape = tuple(v.extent for v in (*self.place, *item.outer))
                buffers[name] = Buffer(name, held, item.device, shape, contiguous_strides(shape), BufferKind.TEMP)
                value = node.value if node.value.dtype == held else Op("cast", (node.value,), held, node.origin)
                stores.append(Store(name, (*self.place, *item.outer), value, atomic=True))
                parts = Load(name, (*self.over, *item.outer), held)
                table[node] = Reduce("sum", parts, self.over, node.dtype, node.origin)
        self.rows.sums += tuple(s.buffer for s in stores)
        own = (*item.outer, *item.inner)
        each = attrs.evolve(item.with_stores(stores), number=number, outer=own, inner=(), plain=False)
        total = attrs.evolve(item.with_stores(rename_store(s, {}, table) for s in item.stores), inner=self.over)
        self.note_readers(each, total)
        places = moved.changes | {v: v for v in self.place}
        changes = {v: member.changes.get(v, v) for v in (*item.outer, *self.over)}
        return Member(each, places, at_inner=True), Member(total, changes)

    def note_readers(self, each: Item, total: Item) -> None:
        """Who reads what the two read in place of one."""
        readers = self.fusion.deps.readers
        reads = {item.number: {load.buffer for load in item.loads} for item in (each, total)}
        for name in set().union(*reads.values()):
            others = (n for n in readers.get(name, ()) if n != total.number)
            readers[name] = (*others, *(n for n, names in reads.items() if name in names))
