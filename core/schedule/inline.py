"""Copies a pointwise producer into its readers, at their coordinates, so that its buffer need not exist.

This is for producers that can't simply share a loop with their readers (broadcast, sliced, gathered, padded), and for
those that are cheaper to recompute than to load. Copying is bounded, so a chain of operators that each use their input
twice stays linear: an expression that gets too large is stored, or shared within one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

import attrs

from armature.lower.data import Buffer, BufferKind, ExternCall, IndexValue, Load, Masked, Node, Op, Reduce, Scan, Store
from armature.lower.index import Index, Var, linear, stride_of, variables
from armature.schedule.align import align
from armature.schedule.axes import addresses, arrange
from armature.schedule.dependencies import Dependencies, Unit
from armature.schedule.group import group_of_item, is_product
from armature.schedule.normalise import Item
from armature.schedule.rules import FusionRules
from armature.schedule.score import CHEAP, FREE_WORK, INLINE_NODES, RECOMPUTE, REREAD, bytes_of, cost, points, size
from armature.schedule.walk import depends, postorder, rename_node, rename_store, with_operands

if TYPE_CHECKING:
    from armature.context import CompileContext


@attrs.frozen(eq=False)
class Producer:
    """A pointwise item that is copied into its readers: element `index` of its buffer is `value`."""

    item: Item
    store: Store

    def at(self, load: Load, bound: Mapping[Var, Node]) -> Node:
        """The value that `load` reads; `bound` has the values of the computed indices in it."""
        changes: dict[Var, Index] = {
            own: where for own, where in zip(self.store.index, load.index, strict=True) if isinstance(own, Var)
        }
        # positions along an axis of one place, which no index has, and which are checked nevertheless
        checked = bound.keys() - frozenset().union(*map(variables, load.index))
        table: dict[Node, Node] = {}
        for node in self.item.order:
            table[node] = _bind(rename_node(with_operands(node, table), changes), bound, checked)
        return table[self.store.value]


def _bind(node: Node, bound: Mapping[Var, Node], checked: Set[Var]) -> Node:
    if isinstance(node, Load):
        known = {var for var, _ in node.indirect}
        used = frozenset(checked).union(*map(variables, node.index))
        more = tuple((var, value) for var, value in bound.items() if var in used and var not in known)
        return attrs.evolve(node, indirect=(*node.indirect, *more)) if more else node
    if isinstance(node, IndexValue) and isinstance(node.index, Var) and node.index in bound:
        value = bound[node.index]
        return value if value.dtype == node.dtype else Op("cast", (value,), node.dtype)
    return node


def inline(units: Sequence[Unit], deps: Dependencies, buffers: Mapping[str, Buffer], ctx: CompileContext) -> list[Unit]:
    """The units with producers copied into their readers. A producer that is no longer read is left out."""
    work = _Inliner(units, deps, buffers, ctx)
    out: list[Unit] = []
    for unit in units:
        if isinstance(unit, Item):
            unit = work.rewrite(unit)
            producer = work.producer(unit)
            if producer is not None:
                work.producers[producer.store.buffer] = producer
                continue
        out.append(unit)
    return out


class _Inliner:
    def __init__(
        self, units: Sequence[Unit], deps: Dependencies, buffers: Mapping[str, Buffer], ctx: CompileContext
    ) -> None:
        self.units = units
        self.deps = deps
        self.buffers = buffers
        self.limit = ctx.config.max_kernel_nodes
        self.rules = FusionRules.of(ctx)
        self.producers: dict[str, Producer] = {}
        self.products = frozenset(unit.number for unit in units if isinstance(unit, Item) and is_product(unit))
        # Buffers that leave their loop for a reader over other points. This is decided before anything is copied,
        # because values that are only read there move too.
        self.moving: set[str] = set()
        for unit in reversed(units):
            if isinstance(unit, Item) and self.producer(unit) is not None:
                self.moving.update(unit.writes)

    def rewrite(self, item: Item) -> Item:
        """The item with loads of inlined buffers replaced by their values; equal loads become one node."""
        if not any(load.buffer in self.producers for load in item.loads):
            return item
        memo: dict[object, Node] = {}
        table: dict[Node, Node] = {}
        for old in item.order:
            node = with_operands(old, table)
            if isinstance(node, Load) and node.buffer in self.producers:
                key = (node.buffer, node.index, tuple((v, id(n)) for v, n in node.indirect))
                if key not in memo:
                    memo[key] = self.producers[node.buffer].at(node, dict(node.indirect))
                table[old] = memo[key]
            else:
                table[old] = node
        sources = [
            self.producers[n].item for n in dict.fromkeys(load.buffer for load in item.loads) if n in self.producers
        ]
        origins = dict.fromkeys(o for source in (*sources, item) for o in source.origins)
        new = item.with_stores(rename_store(s, {}, table) for s in item.stores)
        return attrs.evolve(new, origins=tuple(origins), loops=item.loops.union(*(source.loops for source in sources)))

    def producer(self, item: Item) -> Producer | None:
        """The item as a producer to copy, None if it keeps its buffer."""
        if not item.plain or item.inner or item.scanned or len(item.stores) != 1:
            return None
        store = item.stores[0]
        if store.atomic or store.indirect or store.buffer in self.deps.changed or store.buffer in self.deps.wanted:
            return None
        if any(self.may_change(load.buffer, item.number) for load in item.loads):
            return None
        readers = [self.units[number] for number in self.deps.readers.get(store.buffer, ())]
        found = Producer(item, store)
        if not readers:
            return found  # nothing reads it
        nodes = size(item.order)
        if nodes > INLINE_NODES or any(isinstance(reader, ExternCall) for reader in readers):
            return None
        items = [reader for reader in readers if isinstance(reader, Item)]
        products = [reader for reader in items if reader.number in self.products]
        if products and (len(items) > 1 or any(len(reader.inner) > 1 for reader in products)):
            return None  # library calls read it from memory, so it is stored once for all readers and a whole window
        if any(nodes + size(reader.order) > self.limit for reader in items):
            return None
        return found if self.pays(item, store, items) and not self.kept_apart(item, items) else None

    def kept_apart(self, item: Item, readers: list[Item]) -> bool:
        """Whether a rule of a plugin keeps the item and one of its readers in kernels of their own."""
        if not self.rules.rules:
            return False
        one, others = group_of_item(item), map(group_of_item, readers)
        return any(self.rules.saves(one, other, lambda name: bytes_of(self.buffers[name])) < 0 for other in others)

    def may_change(self, name: str, number: int) -> bool:
        """Whether what the buffer holds for a unit may be another later. The parts of a join are all stored before."""
        if name not in self.deps.changed:
            return False
        own = name not in self.deps.memory and self.buffers[name].kind is BufferKind.TEMP
        return not own or any(writer >= number for writer in self.deps.writers.get(name, ()))

    def pays(self, item: Item, store: Store, readers: list[Item]) -> bool:
        loads = [(r, load) for r in readers for load in r.loads if load.buffer == store.buffer]
        if not all(_can_bind(item, load) for _, load in loads):
            return False
        price = cost(item.order)
        if not item.loads:
            return price <= CHEAP or self.work(item, store, readers) <= FREE_WORK
        together = all(self.shares_loop(item, store, reader) for reader in readers)
        if together and len(readers) == 1:
            # Producer and reader run over the same points, so fusion will join them, unless the reader itself is
            # inlined elsewhere.
            return readers[0].plain and not self.moving.isdisjoint(readers[0].writes)
        if self.turns_layout(item, store, readers):
            return False
        wide = sum(len(d) == len(item.outer) for n, d in depends(item.order).items() if isinstance(n, Load))
        if wide <= 1 and price <= CHEAP and len(item.loads) <= 2 and self.not_wider(item, store):
            return True
        # Several readers at different points can load its sources instead, if that moves no more bytes: as when each
        # reads a part of its own.
        once, work = points(item.outer), self.work(item, store, readers)
        may_repeat = len(readers) == 1 or (wide <= 1 and (self.not_wider(item, store) or work <= once * price))
        return not together and work <= max(once * max(price, RECOMPUTE) if may_repeat else 0, FREE_WORK)

    def turns_layout(self, item: Item, store: Store, readers: list[Item]) -> bool:
        """Whether it copies into another memory layout for readers that read each element many times.

        If it were inlined into them, its strided reads would be repeated at each of their points. An example is the
        weight of a convolution whose image has channels last.
        """
        strides = self.buffers[store.buffer].strides
        along = [v for v, stride in zip(store.index, strides, strict=True) if isinstance(v, Var) and stride == 1]
        along = [v for v in along if v.extent != 1]
        if not along or any(points((*r.outer, *r.inner)) < REREAD * points(item.outer) for r in readers):
            return False
        places = [linear(load.index, self.buffers[load.buffer].strides) for load in item.loads if not load.indirect]
        return any(stride_of(place, along[0]) not in (0, 1) for place in places)

    def not_wider(self, item: Item, store: Store) -> bool:
        """True if reading its sources moves no more bytes than reading its result."""
        have = self.buffers[store.buffer].dtype.itemsize
        return all(self.buffers[load.buffer].dtype.itemsize <= max(have, 4) for load in item.loads)

    def work(self, item: Item, store: Store, readers: list[Item]) -> int:
        """The cost, in additions, of computing the item wherever it is read, after hoisting loop invariants.

        The loops are assumed to be nested in the memory order of the reader's result, as they will be in the kernel.
        """
        price = cost(item.order)
        total = 0
        for reader in readers:
            places = addresses((), reader.stores, self.buffers)
            nest = (*arrange(reader.outer, places), *reader.inner)
            for index in {load.index for load in reader.loads if load.buffer == store.buffer}:
                used = frozenset().union(*(variables(i) for i in index)) if index else frozenset()
                left = list(nest)
                while left and left[-1] not in used:  # hoisted out of the innermost loops
                    left.pop()
                total += price * points(left)
        return total

    def shares_loop(self, item: Item, store: Store, reader: Item) -> bool:
        if not reader.plain:
            return False
        indices = {load.index for load in reader.loads if load.buffer == store.buffer}
        if len(indices) != 1 or any(load.indirect for load in reader.loads if load.buffer == store.buffer):
            return False
        shape = self.buffers[store.buffer].shape
        if any(isinstance(n, Masked) for n in reader.order) and not _always_read(reader, store.buffer):
            return False
        found = align((item.outer, ()), (reader.outer, reader.inner), store.index, indices.pop(), shape)
        return found is not None


def renumbered(units: Sequence[Unit]) -> list[Unit]:
    """The units with items numbered by their position."""
    return [attrs.evolve(u, number=k) if isinstance(u, Item) else u for k, u in enumerate(units)]


def _can_bind(item: Item, load: Load) -> bool:
    """Whether the item can be computed where `load` reads it: at a computed position, its index values must be plain
    variables there."""
    computed = frozenset(var for var, _ in load.indirect)
    if not computed:
        return True
    positions = [node.index for node in item.order if isinstance(node, IndexValue)]
    places = list(zip(item.stores[0].index, load.index, strict=True))
    if not item.loads:
        # nothing else holds the check of a position than a value that is computed of it
        return computed == {where for own, where in places if own in positions and where in computed}
    plain = all(isinstance(where, Var) or computed.isdisjoint(variables(where)) for _, where in places)
    return not positions or (plain and all(isinstance(index, (int, Var)) for index in positions))


def _always_read(reader: Item, buffer: str) -> bool:
    """False if the buffer is only read under a condition."""
    roots = [s.value for s in reader.stores]
    free = postorder(roots, lambda n: (n.cond,) if isinstance(n, Masked) else _below(n))
    return any(isinstance(n, Load) and n.buffer == buffer for n in free)


def _below(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Op):
        return node.args
    if isinstance(node, (Reduce, Scan)):
        return (node.value,)
    return tuple(v for _, v in node.indirect) if isinstance(node, Load) else ()
