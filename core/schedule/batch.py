"""Kernels of one structure as one launch: an optimizer's step does the same to each tensor of a list.

The kernels of a batch have the same depth in the dependency graph, so none depends on another, and they differ only in
buffers and, for a single loop, in its extent. Batching reorders kernels only between two extern calls, and allocates at
most `MOST_MADE` of new memory at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs
import torch

from armature.errors import invariant
from armature.lower.data import Buffer, BufferKind, Const, ExternCall, IndexValue, Load, Masked, Node, Op, Store
from armature.lower.index import Index, Size, Sum, Var, contiguous_strides, linear, numel, substitute
from armature.lower.sharing import shared_memory
from armature.schedule.data import Batch, Kernel, Pass, Work
from armature.schedule.dependencies import reads_of, writes_of
from armature.schedule.score import MOST_MADE, bytes_of
from armature.schedule.walk import operands, postorder, rename_node, rename_store, store_roots, with_operands

Unit: TypeAlias = Work | ExternCall
_POINTS = Size("points", 1)


@attrs.frozen
class Binding:
    """The binding of a body's slot in one member: a buffer, and the element in its memory where the slot begins."""

    buffer: str
    offset: int


@attrs.frozen
class Row:
    """One member: the number of points of its loop, and a binding for each slot, in the order of `Body.slots`."""

    points: int
    bindings: tuple[Binding, ...]


@attrs.frozen(eq=False)
class Body:
    """The common part of a batch's members: a kernel over `slots`, one-dimensional buffers that represent the members'
    own, and a row for each member. If members have different numbers of points, the kernel has one loop, whose extent
    is the size `points`."""

    kernel: Kernel
    slots: Mapping[str, Buffer]
    rows: tuple[Row, ...]


@attrs.frozen(eq=False)
class _Form:
    """A kernel in the form in which it is compared with others: `key` has everything except buffers and the extent of a
    single loop."""

    key: object
    points: int
    slots: tuple[Binding, ...]
    kinds: tuple[tuple[torch.dtype, torch.device], ...]


class _Reader:
    """Computes the form of one kernel."""

    def __init__(self, kernel: Kernel, buffers: Mapping[str, Buffer]) -> None:
        self.kernel = kernel
        self.buffers = buffers
        if len(kernel.outer) == 1:
            self.loops: tuple[Var, ...] = (Var("x", _POINTS),)
        else:
            self.loops = tuple(Var(f"x{k}", var.extent) for k, var in enumerate(kernel.outer))
        self.changes: dict[Var, Index] = dict(zip(kernel.outer, self.loops, strict=True))
        self.slots: dict[Binding, int] = {}

    def binding(self, access: Load | Store) -> tuple[Binding, Index]:
        """The slot of an access, and its position in the slot in terms of the form's loops."""
        buffer = self.buffers[access.buffer]
        position = substitute(linear(access.index, buffer.strides, buffer.offset), self.changes)
        if isinstance(position, int):
            return Binding(access.buffer, position), 0
        if isinstance(position, Sum) and position.const:
            return Binding(access.buffer, position.const), linear((position,), (1,), -position.const)
        return Binding(access.buffer, 0), position

    def access(self, access: Load | Store) -> tuple[int, Index, torch.dtype]:
        binding, position = self.binding(access)
        return self.slots.setdefault(binding, len(self.slots)), position, self.buffers[access.buffer].dtype

    def node(self, node: Node) -> object:
        if isinstance(node, Const):
            return (repr(node.value), node.dtype)
        if isinstance(node, IndexValue):
            return (substitute(node.index, self.changes), node.dtype)
        if isinstance(node, Load):
            return self.access(node)
        if isinstance(node, Masked):
            return ("masked", repr(node.other.value), node.dtype)
        return (node.op, node.dtype)

    def form(self) -> _Form | None:
        """Compute the kernel's form; None for a kernel that can't be batched."""
        kernel, stores = self.kernel, self.kernel.passes[0].outer_stores
        if kernel.inner or kernel.sizes or len(kernel.passes) > 1 or any(s.atomic or s.indirect for s in stores):
            return None
        order = postorder(root for store in stores for root in store_roots(store))
        if any((isinstance(n, Load) and n.indirect) or (isinstance(n, Op) and n.op == "check_index") for n in order):
            return None
        number = {node: k for k, node in enumerate(order)}
        nodes = tuple((self.node(n), tuple(number[child] for child in operands(n))) for n in order)
        written = tuple((self.access(s), number[s.value]) for s in stores)
        buffers = [binding.buffer for binding in self.slots]
        if any(buffers.count(name) > 1 for name in kernel.writes):
            return None  # slots would be treated as unrelated memory, although they are parts of one buffer
        points = numel(v.extent for v in kernel.outer)
        if not isinstance(points, int):
            return None
        kinds = tuple((self.buffers[name].dtype, self.buffers[name].device) for name in buffers)
        extents = tuple(v.extent for v in kernel.outer) if len(kernel.outer) != 1 else None
        # so that the key says which slots are parts of one buffer
        same = tuple(buffers.index(name) for name in buffers)
        apart = tuple(device == kernel.device for _, device in kinds)
        return _Form((kernel.device, extents, nodes, written, same, apart), points, tuple(self.slots), kinds)


def body_of(batch: Batch, buffers: Mapping[str, Buffer]) -> Body:
    """The common body. Errors: InvariantError when members differ in structure."""
    readers = [_Reader(kernel, buffers) for kernel in batch.members]
    found = [reader.form() for reader in readers]
    forms = [form for form in found if form is not None]
    same = len(forms) == len(found) and len({form.key for form in forms}) == 1
    invariant(same, "members of a batch differ in structure", batch=batch.name)
    rows = tuple(Row(form.points, form.slots) for form in forms)
    first, kernel = readers[0], batch.members[0]
    several = len({row.points for row in rows}) > 1
    extent: Index = Size("points", sum(row.points for row in rows)) if several else rows[0].points
    loops = (Var("x", extent),) if len(kernel.outer) == 1 else first.loops
    slots = {}
    for k, (dtype, device) in enumerate(forms[0].kinds):
        shape = (extent,) if device == kernel.device else ()
        slots[f"slot{k}"] = Buffer(f"slot{k}", dtype, device, shape, contiguous_strides(shape), BufferKind.INPUT)
    return Body(_over_slots(batch, first, loops), slots, rows)


def _over_slots(batch: Batch, reader: _Reader, loops: tuple[Var, ...]) -> Kernel:
    """The first member's kernel with slots for buffers, over the form's loops."""
    kernel = reader.kernel
    changes: dict[Var, Index] = dict(zip(kernel.outer, loops, strict=True))
    from_form: dict[Var, Index] = dict(zip(reader.loops, loops, strict=True))
    (item,) = kernel.passes

    def name_and_index(access: Load | Store) -> tuple[str, tuple[Index, ...]]:
        binding, position = reader.binding(access)
        on_device = reader.buffers[binding.buffer].device == kernel.device  # others are numbers, see `Features.scalars`
        return f"slot{reader.slots[binding]}", (substitute(position, from_form),) if on_device else ()

    table: dict[Node, Node] = {}
    for node in postorder(root for store in item.outer_stores for root in store_roots(store)):
        new = with_operands(node, table)
        if isinstance(node, Load) and isinstance(new, Load):
            name, index = name_and_index(node)
            table[node] = attrs.evolve(new, buffer=name, index=index)
        else:
            table[node] = rename_node(new, changes)
    stores: list[Store] = []
    for store in item.outer_stores:
        name, index = name_and_index(store)
        stores.append(attrs.evolve(rename_store(store, {}, table), buffer=name, index=index))
    written = {s.buffer for s in stores}
    names = [f"slot{k}" for k in range(len(reader.slots))]
    sizes = tuple(v.extent for v in loops if isinstance(v.extent, Size))
    return attrs.evolve(
        kernel,
        name=batch.name,
        outer=loops,
        passes=(Pass((), (), tuple(stores)),),
        reads=tuple(n for n in names if n not in written),
        writes=tuple(n for n in names if n in written),
        sizes=sizes,
        origins=batch.origins,
    )


# Finding batches.


def batched(
    work: Sequence[Kernel | ExternCall], buffers: Mapping[str, Buffer], most: Callable[[torch.device], int]
) -> list[Unit]:
    """Group kernels of one structure into batches, in an order that respects dependencies.

    `most`: the number of arguments that a batch may have on a device. Time is close to linear in the work.
    """
    needs = _needs(work)
    depth: list[int] = []
    for needed in needs:
        depth.append(1 + max((depth[k] for k in needed), default=0))
    calls = 0
    classes: dict[object, list[tuple[int, int]]] = {}  # the unit's number, and the points of its loop
    for number, unit in enumerate(work):
        if isinstance(unit, ExternCall):
            calls += 1
        elif most(unit.device) > 1 and (form := _Reader(unit, buffers).form()) is not None:
            classes.setdefault((form.key, depth[number], calls), []).append((number, form.points))
    batches: dict[int, list[int]] = {}  # by the number of the first member
    for found in classes.values():
        first = work[found[0][0]]
        limit = most(first.device) if isinstance(first, Kernel) else 0
        for members in _bounded(found, work, buffers, limit):
            if len(members) > 1:
                batches[members[0]] = members
    return _in_order(work, needs, batches, buffers) if batches else list(work)


def _needs(work: Sequence[Kernel | ExternCall]) -> list[set[int]]:
    """The units that must run before each unit. Extern calls keep their order, because they may draw random numbers."""
    memory = shared_memory(work)
    written: dict[str, int] = {}
    since: dict[str, list[int]] = {}
    last = -1
    found: list[set[int]] = []
    for number, unit in enumerate(work):
        needed: set[int] = set()
        is_call = isinstance(unit, ExternCall)
        if is_call and last >= 0:
            needed.add(last)
        last = number if is_call else last
        reads = reads_of(unit) if isinstance(unit, ExternCall) else unit.reads
        writes = writes_of(unit) if isinstance(unit, ExternCall) else unit.writes
        for name in (*reads, *writes):
            place = memory.get(name, name)
            if place in written:
                needed.add(written[place])
        for name in writes:
            place = memory.get(name, name)
            needed.update(since.pop(place, ()))
            written[place] = number
        for name in reads:
            since.setdefault(memory.get(name, name), []).append(number)
        needed.discard(number)
        found.append(needed)
    return found


def _bounded(
    found: Sequence[tuple[int, int]], work: Sequence[object], buffers: Mapping[str, Buffer], limit: int
) -> Iterable[list[int]]:
    """Split a class of kernels where a batch would have too many arguments, or would allocate too much memory at
    once."""
    members: list[int] = []
    names: set[str] = set()
    made = 0
    for number, _ in found:
        kernel = work[number]
        if not isinstance(kernel, Kernel):
            continue
        own = {*kernel.reads, *kernel.writes}
        new = sum(bytes_of(buffers[n]) for n in kernel.writes if buffers[n].kind is BufferKind.TEMP)
        if members and (len(names | own) > limit or made + new > MOST_MADE):
            yield members
            members, names, made = [], set(), 0
        members.append(number)
        names |= own
        made += new
    yield members


def _in_order(
    work: Sequence[Kernel | ExternCall],
    needs: Sequence[set[int]],
    batches: Mapping[int, Sequence[int]],
    buffers: Mapping[str, Buffer],
) -> list[Unit]:
    """The units, with each batch as one, as early as their first members' positions and dependencies allow."""
    owner = {number: first for first, members in batches.items() for number in members}
    before: dict[int, set[int]] = {}
    users: dict[int, set[int]] = {}
    for number, needed in enumerate(needs):
        mine = owner.get(number, number)
        before.setdefault(mine, set()).update(owner.get(k, k) for k in needed)
    for mine, needed in before.items():
        for other in needed:
            users.setdefault(other, set()).add(mine)
    left = {mine: len(needed) for mine, needed in before.items()}
    ready = [mine for mine, count in left.items() if not count]
    heapq.heapify(ready)
    out: list[Unit] = []
    while ready:
        mine = heapq.heappop(ready)
        out.append(_batch(work, batches[mine], buffers) if mine in batches else work[mine])
        for user in users.get(mine, ()):
            left[user] -= 1
            if not left[user]:
                heapq.heappush(ready, user)
    invariant(len(out) == len(left), "batches need each other", units=len(left), placed=len(out))
    return out


def _batch(work: Sequence[Kernel | ExternCall], members: Sequence[int], buffers: Mapping[str, Buffer]) -> Batch:
    batch = Batch.of([unit for k in members if isinstance(unit := work[k], Kernel)])
    return attrs.evolve(batch, name=f"{batch.name}_kernels") if batch.name in buffers else batch
