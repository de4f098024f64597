"""Normalises loops: variables are unique in the graph, none has extent 1, and each loop has one set of inner
variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import attrs
import torch

from armature.lower.data import (
    Buffer,
    BufferKind,
    Const,
    ExternCall,
    Load,
    Loop,
    LoopGraph,
    Node,
    Op,
    Origin,
    Reduce,
    Scan,
    Store,
)  # fmt: skip
from armature.lower.index import Index, Var, contiguous_strides
from armature.schedule.walk import depends, postorder, rename_node, rename_store, store_roots, with_operands


@attrs.frozen(eq=False)
class Item:
    """A normalised loop. `outer` is its space, `inner` the variables of all its reductions (() for a pointwise loop).

    `number` is its position among the graph's nodes. `order` holds its nodes, operands before users. `loops`: names of
    the loops merged into it.
    """

    number: int
    name: str
    device: torch.device
    outer: tuple[Var, ...]
    inner: tuple[Var, ...]
    stores: tuple[Store, ...]
    origins: tuple[Origin, ...]
    plain: bool
    order: tuple[Node, ...]
    loops: frozenset[str]

    @property
    def loads(self) -> tuple[Load, ...]:
        """All loads, each once."""
        return tuple(node for node in self.order if isinstance(node, Load))

    @property
    def scanned(self) -> tuple[Var, ...]:
        """The outer variables along which it scans: they are the inner ones of its kernel."""
        return next((node.over for node in self.order if isinstance(node, Scan)), ())

    @property
    def writes(self) -> tuple[str, ...]:
        """Names of the buffers stored to."""
        return tuple(dict.fromkeys(store.buffer for store in self.stores))

    def with_stores(self, stores: Iterable[Store]) -> Item:
        """The item with other stores over the same variables."""
        new = tuple(stores)
        return attrs.evolve(self, stores=new, order=nodes_of(new))


def nodes_of(stores: Iterable[Store]) -> tuple[Node, ...]:
    """All nodes that the stores need, operands before users."""
    return tuple(postorder(root for store in stores for root in store_roots(store)))


@attrs.frozen
class Normalised:
    """Items and extern calls in an order that respects their dependencies, and all buffers, including new ones."""

    nodes: tuple[Item | ExternCall, ...]
    buffers: Mapping[str, Buffer]


def normalise(loops: LoopGraph) -> Normalised:
    """Bring every loop of the graph into the form of `Item`; loops without points are dropped."""
    work = _Normaliser(dict(loops.buffers))
    for node in loops.nodes:
        if isinstance(node, Loop):
            work.loop(node)
        else:
            work.nodes.append(node)
    return Normalised(tuple(work.nodes), work.buffers)


class _Normaliser:
    def __init__(self, buffers: dict[str, Buffer]) -> None:
        self.buffers = buffers
        self.nodes: list[Item | ExternCall] = []

    def loop(self, loop: Loop) -> None:
        if any(var.extent == 0 for var in loop.space):
            return
        stores = self.split(loop)
        number = len(self.nodes)
        order = nodes_of(stores)
        outer = {v: _fresh(v, f"p{number}_{k}") for k, v in enumerate(loop.space)}
        positions = _positions(n for n in order if isinstance(n, Reduce))
        inner = {v: _fresh(v, f"q{number}_{k}") for v, k in positions.items()}
        left = tuple(dict.fromkeys(_variables_among(inner.values())))
        changes = {**_bound_names(stores, number), **outer, **inner}
        table: dict[Node, Node] = {}
        for node in order:
            table[node] = _rename(with_operands(node, table), changes, left)
        done = tuple(_rename_bound(rename_store(s, changes, table), changes) for s in stores)
        order = nodes_of(done)
        if not any(isinstance(n, Reduce) for n in order):
            left = ()
        device = self.buffers[stores[0].buffer].device
        space = tuple(_variables_among(outer.values()))
        parts = frozenset((loop.name,))
        plain = loop.plain or all(_writes_all(s, space, self.buffers[s.buffer]) for s in done)
        item = Item(number, loop.name, device, space, left, done, loop.origins, plain, order, parts)
        self.nodes.append(item)

    def split(self, loop: Loop) -> tuple[Store, ...]:
        """The loop's stores, once reductions that do not fit the others have become loops of their own."""
        stores = loop.stores
        while odd := _odd_reduction(stores, loop.space):
            free = depends(nodes_of(stores))[odd]
            space = tuple(sorted(free, key=lambda v: v.name))
            name = f"{loop.name}_part{len(self.nodes)}"
            shape = tuple(v.extent for v in space)
            device = self.buffers[stores[0].buffer].device
            self.buffers[name] = Buffer(name, odd.dtype, device, shape, contiguous_strides(shape), BufferKind.TEMP)
            origins = (odd.origin,) if odd.origin else loop.origins
            self.loop(Loop(name, space, (Store(name, space, odd),), origins))
            stores = _replace(stores, odd, Load(name, space, odd.dtype))
        return stores


def _replace(stores: tuple[Store, ...], old: Node, new: Node) -> tuple[Store, ...]:
    table: dict[Node, Node] = {}
    for node in nodes_of(stores):
        table[node] = new if node is old else with_operands(node, table)
    return tuple(rename_store(s, {}, table) for s in stores)


def _positions(reductions: Iterable[Reduce]) -> dict[Var, int]:
    """The position of each reduction's variables in the common inner loop. Reductions that don't fit were split
    before."""
    return {v: k for node in reductions for k, v in enumerate(node.over)}


def _odd_reduction(stores: tuple[Store, ...], space: tuple[Var, ...]) -> Reduce | None:
    """A reduction that can't share one inner loop with the others: other extents, other order, or nested; any
    reduction beside a scan."""
    order = nodes_of(stores)
    reductions = [n for n in order if isinstance(n, Reduce)]
    if reductions and any(isinstance(n, Scan) for n in order):
        return reductions[0]
    if len(reductions) <= 1:
        return None
    free = depends(order)
    places = _positions(reductions[-1:])
    extents = tuple(v.extent for v in reductions[-1].over)
    for node in reductions:
        fits = tuple(v.extent for v in node.over) == extents
        fits = fits and all(places.get(v, k) == k for k, v in enumerate(node.over))
        if not fits or free[node] - frozenset(space):
            return node
        places.update(_positions((node,)))
    return None


def _writes_all(store: Store, space: tuple[Var, ...], buffer: Buffer) -> bool:
    """Whether each point writes its own element, and all are written: then a copy into an input is a plain loop."""
    if store.atomic or store.indirect or len(store.index) != len(buffer.shape):
        return False
    used = [i for i in store.index if isinstance(i, Var)]
    if len(used) != len(space) or frozenset(used) != frozenset(space):
        return False
    pairs = zip(store.index, buffer.shape, strict=True)
    return all(i.extent == size if isinstance(i, Var) else i == 0 and size == 1 for i, size in pairs)


def _fresh(var: Var, name: str) -> Index:
    return 0 if var.extent == 1 else Var(name, var.extent)


def _variables_among(values: Iterable[Index]) -> list[Var]:
    return [v for v in values if isinstance(v, Var)]


def _bound_names(stores: tuple[Store, ...], number: int) -> dict[Var, Index]:
    names: dict[Var, Index] = {}
    holders: list[Load | Store] = [n for n in nodes_of(stores) if isinstance(n, Load)]
    for holder in (*holders, *stores):
        for var, _ in holder.indirect:
            names.setdefault(var, Var(f"x{number}_{len(names)}", var.extent))
    return names


def _rename(node: Node, changes: Mapping[Var, Index], inner: tuple[Var, ...]) -> Node:
    if isinstance(node, Reduce):
        if inner:
            return attrs.evolve(node, over=inner)
        if node.op.startswith("arg"):
            return Const(0, node.dtype)
        same = node.value.dtype == node.dtype
        return node.value if same else Op("cast", (node.value,), node.dtype, node.origin)
    new = rename_node(node, changes)
    if isinstance(new, Load) and new.indirect:
        return _rename_bound(new, changes)
    return new


Access = TypeVar("Access", Load, Store)


def _rename_bound(access: Access, changes: Mapping[Var, Index]) -> Access:
    """Make the names of computed indices unique too, or drop those whose index became a number."""
    if not access.indirect:
        return access
    pairs = ((changes.get(var, var), value) for var, value in access.indirect)
    return attrs.evolve(access, indirect=tuple((var, value) for var, value in pairs if isinstance(var, Var)))
