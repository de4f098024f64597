"""Turns a group of items into a kernel: fused values as shared nodes, stores assigned to passes, loops in their final
form."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

import attrs

from armature.lower.data import Buffer, IndexValue, Load, Node, Reduce, Scan, Store
from armature.lower.index import Index, Size, Var, sizes
from armature.schedule.axes import addresses, arrange, has_product, is_order_sensitive, merge
from armature.schedule.data import Kernel, Pass
from armature.schedule.group import Group, Where
from armature.schedule.names import kernel_name
from armature.schedule.walk import (
    operands,
    postorder,
    rebuild,
    rename_node,
    rename_store,
    store_roots,
    structure,
    with_operands,
)  # fmt: skip


@attrs.frozen(eq=False)
class PlacedStore:
    """A store and where it is made. `at_inner`: at every inner point. `last`: in the last pass, because any pass may
    read what it overwrites."""

    store: Store
    at_inner: bool
    last: bool


def build_kernel(
    group: Group, number: int, buffers: Mapping[str, Buffer], is_needed: Callable[[str], bool], changed: frozenset[str]
) -> Kernel:
    """The kernel of a group. `is_needed` says which buffers are needed after it; stores to others are dropped."""
    placed = [p for p in _joined(group, changed) if is_needed(p.store.buffer)]
    origins = tuple(dict.fromkeys(o for m in group.members for o in m.item.origins))
    loops = {name for m in group.members for name in m.item.loops}
    like = Kernel(
        kernel_name(origins, number, buffers),
        group.members[0].item.device,
        group.outer,
        group.inner,
        passes=(),
        reads=(),
        writes=(),
        origins=origins,
        operators=len(loops),
        loops=tuple(sorted(loops)),
        sums=group.sums,
    )
    return _with_stores(like, placed, buffers)


def part_of(kernel: Kernel, names: Container[str], buffers: Mapping[str, Buffer]) -> Kernel:
    """A kernel that makes only the kernel's stores to some of its buffers, under the same name. It may load none that
    the kernel stores."""
    placed = [
        PlacedStore(store, at_inner, last=False)
        for step in kernel.passes
        for at_inner, stores in ((True, step.inner_stores), (False, step.outer_stores))
        for store in stores
        if store.buffer in names
    ]
    return _with_stores(kernel, placed, buffers)


def with_store(kernel: Kernel, store: Store, buffers: Mapping[str, Buffer]) -> Kernel:
    """A kernel over the loops of another one without inner loops, that makes this store alone."""
    return _with_stores(kernel, [PlacedStore(store, at_inner=False, last=False)], buffers)


def _with_stores(like: Kernel, placed: list[PlacedStore], buffers: Mapping[str, Buffer]) -> Kernel:
    """A kernel that makes the stores, over the loops of another one."""
    outer, inner, placed = _arranged(like.outer, like.inner, placed, buffers)
    stores = [p.store for p in placed]
    order = postorder(root for s in stores for root in store_roots(s))
    writes = tuple(dict.fromkeys(s.buffer for s in stores))
    return attrs.evolve(
        like,
        outer=outer,
        inner=inner,
        passes=_passes(placed, inner),
        reads=tuple(dict.fromkeys(n.buffer for n in order if isinstance(n, Load) and n.buffer not in writes)),
        writes=writes,
        sums=tuple(name for name in like.sums if name in writes),
        sizes=_sizes(order, stores, (*outer, *inner), buffers),
    )


def _joined(group: Group, changed: frozenset[str]) -> list[PlacedStore]:
    """All stores of the members in the group's variables, with members' values substituted for loads."""
    known: dict[tuple[str, Where], Node] = {}
    placed: list[PlacedStore] = []
    for member in group.members:
        table: dict[Node, Node] = {}
        for old in member.item.order:
            node = with_operands(old, table)
            if isinstance(node, (Reduce, Scan)):
                table[old] = attrs.evolve(node, over=group.inner)
                continue
            node = rename_node(node, member.changes)
            table[old] = known.get((node.buffer, node.index), node) if isinstance(node, Load) else node
        for store in member.item.stores:
            new = rename_store(store, member.changes, table)
            placed.append(PlacedStore(new, member.at_inner, store.buffer in changed))
            if not store.atomic:
                known[store.buffer, new.index] = new.value
    return placed


def _arranged(
    outer: tuple[Var, ...], inner: tuple[Var, ...], placed: list[PlacedStore], buffers: Mapping[str, Buffer]
) -> tuple[tuple[Var, ...], tuple[Var, ...], list[PlacedStore]]:
    """The stores over loops in their final order, with neighbours merged."""
    stores = [p.store for p in placed]
    roots = [root for s in stores for root in store_roots(s)]
    order = postorder(roots)
    if not any(isinstance(n, (Reduce, Scan)) for n in order) and inner:
        outer, inner = (*outer, *inner), ()
    places = addresses(order, stores, buffers)
    inner = inner if is_order_sensitive(order) else arrange(inner, places)
    outer = arrange(outer, places)
    # A back end tells from a product's own loops whether it is one of matrices or a convolution.
    change_outer: dict[Var, Index] = {}
    change_inner: dict[Var, Index] = {}
    if not has_product(order):
        outer, change_outer = merge(outer, places)
        inner, change_inner = merge(inner, places)
    changes = {**change_outer, **change_inner}

    known: dict[object, Node] = {}
    itself: dict[Node, Node] = {}

    def change(node: Node) -> Node:
        new = attrs.evolve(node, over=inner) if isinstance(node, (Reduce, Scan)) else rename_node(node, changes)
        found = known.setdefault(structure(new, itself), new)
        itself[found] = found
        return found

    table = rebuild(roots, change)
    return outer, inner, [attrs.evolve(p, store=rename_store(p.store, changes, table)) for p in placed]


def _passes(placed: list[PlacedStore], inner: tuple[Var, ...]) -> tuple[Pass, ...]:
    """Assign stores and reductions to passes: reductions that a pass needs are made in earlier ones."""
    stores = tuple(p.store for p in placed)
    if not inner:
        return (Pass((), (), stores),)
    level: dict[Node, int] = {}
    reductions: list[Reduce] = []
    for node in postorder(root for s in stores for root in store_roots(s)):
        level[node] = max((level[child] for child in operands(node)), default=0)
        if isinstance(node, Reduce):
            level[node] += 1
            reductions.append(node)
    when = {p: max(level[root] for root in store_roots(p.store)) for p in placed}
    count = max([level[r] for r in reductions] + [when[p] + 1 for p in placed if p.at_inner])

    def own_pass(item: PlacedStore) -> int:
        if item.last:
            return count
        return when[item] + 1 if item.at_inner else max(when[item], 1)

    return tuple(
        Pass(
            tuple(r for r in reductions if level[r] == number),
            tuple(p.store for p in placed if p.at_inner and own_pass(p) == number),
            tuple(p.store for p in placed if not p.at_inner and own_pass(p) == number),
        )
        for number in range(1, count + 1)
    )


def _sizes(
    order: Iterable[Node], stores: Iterable[Store], loops: Iterable[Var], buffers: Mapping[str, Buffer]
) -> tuple[Size, ...]:
    """Symbolic sizes that the kernel needs, by name."""
    found: set[Size] = set()
    for var in loops:
        found |= sizes(var.extent)
    accesses: list[Load | Store] = [n for n in order if isinstance(n, Load)]
    for access in (*accesses, *stores):
        for index in (*access.index, *buffers[access.buffer].strides):
            found |= sizes(index)
    for node in order:
        if isinstance(node, IndexValue):
            found |= sizes(node.index)
    return tuple(sorted(found, key=lambda s: s.name))
