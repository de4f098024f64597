"""The lifetime of each buffer: allocated before its first use, released after its last, its memory reused where it
fits."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import cast

import attrs
import torch

from armature.lower.data import Buffer, BufferKind, ExternCall, Load, LoopGraph, Node, Reduce, Store, View
from armature.lower.index import Index, add, hint, linear, mul, sub
from armature.lower.sharing import shared_memory
from armature.schedule.data import Allocate, Batch, Kernel, Launch, Pass, Release, Step, Work
from armature.schedule.dependencies import reads_of, writes_of
from armature.schedule.late import apart, begun, delayed, divided, postponed, recomputed
from armature.schedule.score import (
    BEGINNINGS,
    CHEAP,
    LENGTHENED,
    LONGEST_HELD,
    SWAPS,
    WORTH_A_COPY,
    WORTH_A_LAUNCH,
    WORTH_BEGINNING,
    WORTH_RECOMPUTING,
    cost,
)  # fmt: skip
from armature.schedule.swaps import swapped
from armature.schedule.walk import postorder, rebuild, recomputed_operands, rename_store, store_roots
from armature.torch_abi.memory import HOST


@attrs.frozen
class MemoryKind:
    """The properties that memory must share to be reused."""

    device: torch.device
    dtype: torch.dtype
    bytes: Index


def memory_kind(buffer: Buffer) -> MemoryKind:
    """Bytes that the buffer's elements span."""
    span: Index = 1
    for size, stride in zip(buffer.shape, buffer.strides, strict=True):
        span = add(span, mul(sub(size, 1), stride))
    return MemoryKind(buffer.device, buffer.dtype, mul(span, buffer.dtype.itemsize))


@attrs.frozen(eq=False)
class Headroom:
    """How much released memory each step can keep for a later one without a higher peak.

    The peak counts in two ways: with the inputs, for callers that drop them, and without. `spare`: for each step, the
    bytes left in both.
    """

    spare: list[int]

    @classmethod
    def of(cls, used: Sequence[tuple[int, int]]) -> Headroom:
        """From what each step of a plan that keeps nothing uses (`usage`)."""
        peaks = peak(used)
        return cls([min(peaks[0] - alone, peaks[1] - both) for alone, both in used])

    def hold(self, after: int, until: int, size: int) -> bool:
        """Keep memory after a step until another one begins, if the steps in between can spare it."""
        between = range(after + 1, until)
        if len(between) > LONGEST_HELD or any(self.spare[k] < size for k in between):
            return False
        for k in between:
            self.spare[k] -= size
        return True


def usage(steps: Iterable[Step], buffers: Mapping[str, Buffer], loops: LoopGraph) -> list[tuple[int, int]]:
    """Bytes that are live at each kernel or call, without and with the inputs, but for those that others hold. Symbolic
    sizes count at their hints."""
    bytes_of = {name: hint(memory_kind(buffer).bytes) for name, buffer in buffers.items()}
    given = _InputMemory.of(bytes_of, loops)
    own = 0
    used: list[tuple[int, int]] = []
    for step in steps:
        if isinstance(step, Allocate):
            own += bytes_of[step.buffer] if step.reuse is None else 0
            if step.over is not None:
                given.release(step.over)
        elif isinstance(step, Release):
            if buffers[step.buffer].kind is BufferKind.INPUT:
                given.release(step.buffer)
            else:
                own -= bytes_of[step.buffer]
        else:
            besides = 0
            if isinstance(step, ExternCall):
                own += sum(bytes_of[name] for name in step.outputs if name is not None)
                besides = step.workspace
            used.append((own + besides, own + given.bytes + besides))
    return used


@attrs.define(eq=False)
class _InputMemory:
    """The memory of a graph's inputs: bytes in all; of each, the inputs in it that are still needed, and its bytes."""

    bytes: int
    memory: Mapping[str, tuple[set[str], int]]

    @classmethod
    def of(cls, bytes_of: Mapping[str, int], loops: LoopGraph) -> _InputMemory:
        apart = set(loops.inputs).difference(loops.lasting, *loops.shared_inputs)
        groups = [set(group) for group in (*loops.shared_inputs, *({name} for name in apart))]
        sizes = [(group, max(bytes_of.get(name, 0) for name in group)) for group in groups]
        return cls(sum(size for _, size in sizes), {name: entry for entry in sizes for name in entry[0]})

    def release(self, name: str) -> None:
        """An input is not needed any more; the bytes go with the last one in the same memory."""
        needed, size = self.memory.get(name, (set(), 0))
        if name in needed:
            needed.remove(name)
            self.bytes -= 0 if needed else size


def peak(used: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The most bytes, without and with the inputs."""
    return max((one for one, _ in used), default=0), max((both for _, both in used), default=0)


def touched(step: Work | ExternCall) -> tuple[str, ...]:
    """Buffers that the step reads or writes."""
    if isinstance(step, ExternCall):
        return tuple(dict.fromkeys((*reads_of(step), *writes_of(step))))
    return (*step.reads, *step.writes)


@attrs.define(eq=False)
class _Planner:
    loops: LoopGraph
    buffers: Mapping[str, Buffer]
    last: Mapping[str, int]
    returned: frozenset[str]
    shared: frozenset[str]  # buffers that share memory with others, which may live longer
    steps: list[Step] = attrs.field(factory=list)
    free: dict[MemoryKind, list[str]] = attrs.field(factory=dict)
    headroom: Headroom | None = None  # limits the reuse of released memory; None: there is no reuse
    released: dict[str, int] = attrs.field(factory=dict)  # the step after which memory in `free` was last used
    alive: set[str] = attrs.field(factory=set)
    owned: set[str] = attrs.field(factory=set)  # memory that may be reused

    def launch(self, work: Work, number: int) -> None:
        """Allocate what the kernels write, in place of what they read for the last time if possible. Members of a batch
        are treated alike: each reuses its operand's memory, or none does."""
        members = list(work.members) if isinstance(work, Batch) else [work]
        overlaid: list[tuple[str, str]] = []
        uses = Counter(name for kernel in members for name in kernel.reads)
        ending = {n for n, count in uses.items() if count == 1 and self.last[n] == number and n in self.owned}
        for column in range(len(members[0].writes)):
            made = [kernel.writes[column] for kernel in members]
            made = [name for name in made if name not in self.alive and self.is_own(name)]
            held, members = self.operands(members, column, ending) if len(made) == len(members) else (None, members)
            for at, name in enumerate(made):
                self.alive.add(name)
                self.own(name)
                lent = self.lent(members, name, number, overlaid) if held is None else None
                if lent is not None:
                    over, members = lent
                    overlaid.append((over, name))
                    self.steps.append(Allocate(name, over=over))
                    continue
                place = self.taken_over(name, number) if held is None else held[at]
                self.steps.append(Allocate(name, place))
                if place is None:
                    self.give_up_released()
            if held is not None:
                ending.difference_update(held)
                self.alive.difference_update(held)
                members = [renamed(k, old, k.writes[column]) for k, old in zip(members, held, strict=True)]
        alone = attrs.evolve(members[0], overlaid=tuple(overlaid))
        done = attrs.evolve(Batch.of(members), name=work.name) if isinstance(work, Batch) else alone
        self.steps.append(Launch(done))

    def operands(
        self, members: list[Kernel], column: int, ending: Container[str]
    ) -> tuple[list[str] | None, list[Kernel]]:
        """For each member, the buffer that it reads for the last time and whose memory its result may reuse, and the
        member as it makes the result there. None if a member has no such buffer, or if the buffers are not at the same
        position in all members."""
        later = [stored_last(kernel, kernel.writes[column]) for kernel in members]
        for made in (members, [kernel for kernel in later if kernel is not None]):
            for place, name in enumerate(members[0].reads):
                held = [kernel.reads[place] for kernel in members] if name in ending else []
                if (
                    held
                    and len(held) == len(made)
                    and all(
                        old in ending and self.in_place(kernel, old, kernel.writes[column])
                        for kernel, old in zip(made, held, strict=True)
                    )
                ):
                    return held, made
        return None, members

    def lent(
        self, members: Sequence[Kernel], name: str, number: int, taken: Sequence[tuple[str, str]]
    ) -> tuple[str, list[Kernel]] | None:
        """A spare input that a kernel reads for the last time and in whose memory its result may be made, and the
        kernel that makes it there. Not for batches."""
        [kernel, *others] = members
        old = [n for n in kernel.reads if n in self.loops.spare and n not in self.shared and self.last[n] == number]
        free = [n for n in old if all(n != one for one, _ in taken)] if not others else []
        for changed in (kernel, stored_last(kernel, name)) if free else ():
            found = next((n for n in free if changed is not None and self.in_place(changed, n, name)), None)
            if found is not None and changed is not None:
                return found, [changed]
        return None

    def taken_over(self, name: str, number: int) -> str | None:
        """A released buffer whose memory this one can reuse."""
        own = memory_kind(self.buffers[name])
        pool = self.free.get(own)
        if not pool or self.headroom is None:
            return None
        # The others have as many bytes and were released earlier, so they would be held for these steps, and more.
        held = self.headroom.hold(self.released[pool[-1]], number, hint(own.bytes))
        return pool.pop() if held else None

    def extern(self, call: ExternCall) -> None:
        self.steps.append(call)
        self.give_up_released()
        for name in call.outputs:
            if name is not None:
                self.alive.add(name)
                self.own(name)

    def give_up_released(self) -> None:
        """Return released memory to torch's allocator, because something else is about to be allocated. Allocators of
        devices other than the CPU cache memory, so holding it back would only cause a shortage."""
        for place in [place for place in self.free if place.device.type != HOST.type]:
            del self.free[place]

    def own(self, name: str) -> None:
        if name not in self.shared:
            self.owned.add(name)

    def is_own(self, name: str) -> bool:
        return self.buffers[name].kind not in (BufferKind.INPUT, BufferKind.CONSTANT)

    def release(self, names: Iterable[str], number: int) -> None:
        for name in names:
            if self.last[name] == number and name not in self.returned and name in self.alive:
                self.alive.discard(name)
                self.steps.append(Release(name))
                if name in self.owned:
                    self.released[name] = number
                    self.free.setdefault(memory_kind(self.buffers[name]), []).append(name)

    def in_place(self, kernel: Kernel, old: str, new: str) -> bool:
        """Whether `new` may be computed in the memory of `old`: each element is read only where it is written."""
        mine_is, old_is = self.buffers[new], self.buffers[old]
        if old in self.returned or memory_kind(old_is) != memory_kind(mine_is):
            return False
        stores = [(n, s) for n, p in enumerate(kernel.passes) for s in (*p.inner_stores, *p.outer_stores)]
        mine = [(n, s) for n, s in stores if s.buffer == new]
        if len(mine) != 1 or mine[0][1].atomic or mine[0][1].indirect or mine[0][0] != len(kernel.passes) - 1:
            return False
        where = linear(mine[0][1].index, mine_is.strides)
        loads = [n for n in _nodes(kernel) if isinstance(n, Load) and n.buffer == old]
        return all(linear(load.index, old_is.strides) == where and not load.indirect for load in loads)


def same_layout(one: Buffer, other: Buffer) -> bool:
    """True if a tensor of one buffer can be used as the other without change."""
    return (one.dtype, one.device, one.shape, one.strides) == (other.dtype, other.device, other.shape, other.strides)


def stored_last(kernel: Kernel, name: str) -> Kernel | None:
    """The kernel with the only store to the buffer in the last pass, if that loads what the store needs anyway."""
    *earlier, last = kernel.passes
    moved = [store for step in earlier for store in step.inner_stores if store.buffer == name]
    if len(moved) != 1 or not (last.inner_stores or last.reductions):
        return None
    roots = [root for store in last.inner_stores for root in store_roots(store)]
    there = set(postorder([*roots, *(each.value for each in last.reductions)], recomputed_operands))
    loaded = {(node.buffer, node.index) for node in there if isinstance(node, Load)}
    new = postorder(store_roots(moved[0]), recomputed_operands, skip=there)
    loads = [node for node in new if isinstance(node, Load)]
    if any(node.indirect or (node.buffer, node.index) not in loaded or node.buffer in kernel.writes for node in loads):
        return None
    if any(isinstance(node, Load) and node.buffer == name for node in _nodes(kernel)):
        return None
    if cost(node for node in new if node not in loads) > CHEAP:
        return None
    steps = (attrs.evolve(p, inner_stores=tuple(s for s in p.inner_stores if s.buffer != name)) for p in earlier)
    end = attrs.evolve(last, inner_stores=(*last.inner_stores, *moved))
    return attrs.evolve(kernel, passes=(*(p for p in steps if p.reductions or p.inner_stores or p.outer_stores), end))


def _nodes(kernel: Kernel) -> list[Node]:
    return postorder(root for s in _stores(kernel) for root in store_roots(s))


def _stores(kernel: Kernel) -> list[Store]:
    return [s for p in kernel.passes for s in (*p.inner_stores, *p.outer_stores)]


def renamed(kernel: Kernel, old: str, new: str) -> Kernel:
    """The kernel with reads of `old` replaced by reads of `new`, which is in the same memory, where it is written."""
    [where] = [store.index for store in _stores(kernel) if store.buffer == new]

    def change(node: Node) -> Node:
        return attrs.evolve(node, buffer=new, index=where) if isinstance(node, Load) and node.buffer == old else node

    table = rebuild([root for s in _stores(kernel) for root in store_roots(s)], change)
    passes = tuple(
        Pass(
            tuple(cast(Reduce, table[r]) for r in p.reductions),
            tuple(rename_store(s, {}, table) for s in p.inner_stores),
            tuple(rename_store(s, {}, table) for s in p.outer_stores),
        )
        for p in kernel.passes
    )
    return attrs.evolve(kernel, passes=passes, reads=tuple(r for r in kernel.reads if r != old))


def plan_memory(work: Sequence[Work | ExternCall], loops: LoopGraph, buffers: Mapping[str, Buffer]) -> tuple[Step, ...]:
    """The steps with allocations and releases added, in the order of the work, or with some of it done later."""
    order: Sequence[Work | ExternCall] = work
    used = usage(_planned(order, loops, buffers, None), buffers, loops)
    changes = (
        (postponed, 0.0, 0, 0.0),
        (apart, WORTH_A_LAUNCH, 0, 0.0),
        (delayed, 0.0, 0, 0.0),
        (divided, WORTH_A_COPY, 0, 0.0),
        (divided, WORTH_A_COPY, 1, 0.0),
        (recomputed, WORTH_RECOMPUTING, 0, LENGTHENED),
        *((begun, WORTH_BEGINNING, 0, LENGTHENED) for _ in range(BEGINNINGS)),
        *((swapped, 0.0, 1 - n % 2, 0.0) for n in range(SWAPS)),
    )
    for change, least, measure, lost in changes:
        most = peak(used)
        highest = next((n for n, each in enumerate(used) if each[measure] == most[measure]), 0)
        instead = change(order, loops, buffers, highest)
        if len(instead) == len(order) and all(map(operator.is_, instead, order)):
            continue
        planned = usage(_planned(instead, loops, buffers, None), buffers, loops)
        saved = [before - after for before, after in zip(most, peak(planned), strict=True)]
        if min(saved) >= -lost * saved[measure] and any(saved) and saved[measure] >= least * most[measure]:
            order, used = instead, planned
    return _planned(order, loops, buffers, Headroom.of(used))


def _planned(
    work: Sequence[Work | ExternCall], loops: LoopGraph, buffers: Mapping[str, Buffer], headroom: Headroom | None
) -> tuple[Step, ...]:
    last = {name: number for number, step in enumerate(work) for name in touched(step)}
    returned = frozenset(v.buffer for v in loops.outputs if isinstance(v, View))
    planner = _Planner(loops, buffers, last, returned, frozenset(shared_memory(work)), headroom=headroom)
    planner.alive.update(loops.inputs)
    # Inputs are released too (the caller may have dropped them), but their memory is not ours to reuse.
    unused = [name for name in loops.inputs if name not in last and name not in returned]
    planner.steps += [Release(name) for name in unused if name in buffers]
    made = {name for step in work for name in (step.outputs if isinstance(step, ExternCall) else step.writes)}
    # Loops without points were dropped; their buffers are still returned or read.
    empty = [n for n in dict.fromkeys((*last, *sorted(returned))) if planner.is_own(n) and n not in made]
    planner.steps += [Allocate(name) for name in empty]
    planner.alive.update(empty)
    for number, step in enumerate(work):
        if isinstance(step, ExternCall):
            planner.extern(step)
        else:
            planner.launch(step, number)
        planner.release(touched(step), number)
    return tuple(planner.steps)
