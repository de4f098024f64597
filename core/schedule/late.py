"""Work that is done later, or begun earlier, where that lowers the peak of memory: whole units, and single stores.

Backward makes the gradient of a weight where it has the operands. Where that gradient is larger than what it lets go,
as with few rows, it would wait in memory while the rest of backward runs. A kernel that has a value stores it also as
part of a join, whose memory then waits for the other parts. What is cheap to compute of the graph's inputs is computed
where it is needed, even if another kernel has read the same before: sums of embeddings that a product reads too.
A batch makes the results of all its members at once, also those that are read much later.
A kernel that reads what many units have made, as the sum of all layers' results, is begun while some are still to come.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import TypeAlias

import attrs
import torch

from armature.lower.data import Buffer, BufferKind, ExternCall, Load, LoopGraph, Masked, Node, Store, View
from armature.lower.index import hint
from armature.lower.sharing import shared_memory
from armature.schedule.data import Batch, Kernel, Pass, Work
from armature.schedule.dependencies import reads_of, writes_of
from armature.schedule.kernels import part_of, with_store
from armature.schedule.names import kernel_name
from armature.schedule.score import BEGUN, INLINE_NODES, RECOMPUTED, bytes_of, cost, points
from armature.schedule.walk import operands, postorder, rebuild, store_roots

Unit: TypeAlias = Work | ExternCall


def postponed(work: Sequence[Unit], loops: LoopGraph, buffers: Mapping[str, Buffer], peak: int) -> list[Unit]:
    """The work with such units last, in their order."""
    returned = {view.buffer for view in loops.outputs if isinstance(view, View)}
    kept = returned | loops.lasting
    shared = shared_memory(work)
    last = {name: number for number, unit in enumerate(work) for name in (*reads(unit), *writes(unit))}
    written = {name: number for number, unit in enumerate(work) for name in writes(unit)}
    inputs = [number for name, number in written.items() if buffers[name].kind is BufferKind.INPUT]

    def waits(number: int, unit: Unit) -> bool:
        made, read = writes(unit), reads(unit)
        if not returned.issuperset(made) or not all(last[name] == number for name in made) or not is_pure(unit):
            return False
        if not shared.keys().isdisjoint((*made, *read)) or any(written.get(name, -1) > number for name in read):
            return False
        if inputs and max(inputs) > number:
            return False  # the unit may raise, and then the inputs are as they were
        new = [name for name in made if buffers[name].kind is not BufferKind.INPUT]
        # What it reads would wait with it, even if all other readers are done before the peak.
        held = [name for name in read if (last[name] == number or last[name] <= peak) and name not in kept]
        return len(new) == len(made) and _bytes(new, buffers) > _bytes(held, buffers)

    late = [number for number, unit in enumerate(work) if waits(number, unit)]
    held = set(late)
    return [unit for number, unit in enumerate(work) if number not in held] + [work[number] for number in late]


def delayed(work: Sequence[Unit], loops: LoopGraph, buffers: Mapping[str, Buffer], peak: int) -> list[Unit]:
    """The work with units from before the unit number `peak` moved to where their results are read, if that is behind
    it and they let go no more than they make."""
    kept = loops.lasting.union(view.buffer for view in loops.outputs if isinstance(view, View))
    shared = shared_memory(work)
    touched, written = _uses(work)
    inputs = [number for name, numbers in written.items() for number in numbers if _is_input(buffers[name])]

    moved: dict[int, int] = {}

    def until(number: int, unit: Unit) -> int:
        made, read = writes(unit), reads(unit)
        if not is_pure(unit) or any(_is_input(buffers[name]) or touched[name][0] != number for name in made):
            return number
        end = min((moved.get(each, each) for name in made for each in touched[name][1:]), default=number)
        gone = [name for name in read if touched[name][-1] == number and name not in kept]
        if end <= peak or not shared.keys().isdisjoint((*made, *read)) or _bytes(made, buffers) < _bytes(gone, buffers):
            return number
        changes = [*inputs, *(each for name in read for each in written.get(name, ()))]
        return number if any(number < each < end for each in changes) else end

    for number in range(min(peak, len(work) - 1), -1, -1):  # what reads a result may have moved itself
        place = until(number, work[number])
        if place != number:
            moved[number] = place
    behind: dict[int, list[Unit]] = {}
    for number in sorted(moved):
        behind.setdefault(moved[number], []).append(work[number])
    return [each for n, unit in enumerate(work) for each in (*behind.get(n, ()), *(() if n in moved else (unit,)))]


def apart(work: Sequence[Unit], loops: LoopGraph, buffers: Mapping[str, Buffer], peak: int) -> list[Unit]:
    """The work with members of batches from before the unit number `peak` launched on their own behind it, where their
    results are first read or added to: the zeros that each of several layers adds to."""
    touched, written = _uses(work)
    shared = shared_memory(work)
    units: list[Unit | None] = list(work)
    moved: dict[int, list[Kernel]] = {}

    def place(number: int, kernel: Kernel) -> int:
        """Where the kernel may run at the latest."""
        made = kernel.writes
        if not shared.keys().isdisjoint((*made, *kernel.reads)) or any(_is_input(buffers[name]) for name in made):
            return number
        if any(touched[name][0] != number for name in made):
            return number
        end = min((touched[name][1] for name in made if len(touched[name]) > 1), default=number)
        return number if any(number < n < end for name in kernel.reads for n in written.get(name, ())) else end

    for number, unit in enumerate(work[: peak + 1]):
        if isinstance(unit, Batch):
            places = {kernel.name: end for kernel in unit.members if (end := place(number, kernel)) > peak}
            for kernel in unit.members:
                if kernel.name in places:
                    moved.setdefault(places[kernel.name], []).append(kernel)
            left = [kernel for kernel in unit.members if kernel.name not in places]
            several = attrs.evolve(Batch.of(left), name=unit.name) if len(left) > 1 else None
            units[number] = unit if not places else several or (left[0] if left else None)
    placed = ((*moved.get(number, ()), unit) for number, unit in enumerate(units))
    return [unit for group in placed for unit in group if unit is not None]


def divided(work: Sequence[Unit], loops: LoopGraph, buffers: Mapping[str, Buffer], peak: int) -> list[Unit]:
    """The work with stores moved behind the unit number `peak`, if nothing touches their buffers until then: each is
    made by a copy of what its kernel has stored elsewhere too."""
    touched, written = _uses(work)
    own = {name for name in written if buffers[name].kind not in (BufferKind.INPUT, BufferKind.CONSTANT)}
    own.difference_update(shared_memory(work))
    units = list(work)
    copies: dict[int, list[Kernel]] = {}
    sources: set[str] = set()  # what copies read, which stays where it is made
    for number, kernel in enumerate(work[: peak + 1]):
        if not isinstance(kernel, Kernel) or not own.issuperset(kernel.writes):
            continue
        for name in kernel.writes:
            first, *later = touched[name]
            moves = first == number and later and later[0] > peak and name not in sources
            copy = _copy(units[number], name, buffers) if moves else None
            if copy is None or any(number < each < later[0] for each in written[copy.reads[0]]):
                continue
            sources.add(copy.reads[0])
            until = work[later[0]].origins
            origins = tuple(each for each in kernel.origins if each in until) or kernel.origins
            title = kernel_name(origins, len(work) + sum(map(len, copies.values())), buffers)
            copies.setdefault(later[0], []).append(attrs.evolve(copy, name=title, origins=origins))
            units[number] = _without(units[number], name)
    return [each for number, unit in enumerate(units) for each in (*copies.get(number, ()), unit)]


def recomputed(work: Sequence[Unit], loops: LoopGraph, buffers: Mapping[str, Buffer], peak: int) -> list[Unit]:
    """The work with stores moved behind the unit number `peak`, if nothing touches their buffers until then: each is
    made by a kernel that computes it, at little cost, of what no unit changes until then."""
    touched, written = _uses(work)
    own = {name for name in written if buffers[name].kind not in (BufferKind.INPUT, BufferKind.CONSTANT)}
    own.difference_update(shared_memory(work))
    given = {name for name, buffer in buffers.items() if buffer.kind in (BufferKind.INPUT, BufferKind.CONSTANT)}
    given.difference_update(written)
    if any(_is_input(buffers[name]) for name in written):
        return list(work)  # a unit may raise, and then the inputs are as they were
    units: list[Unit | None] = list(work)
    moved: dict[int, list[Kernel]] = {}
    for number, kernel in enumerate(work[: peak + 1]):
        if not isinstance(kernel, Kernel) or not own.issuperset(kernel.writes) or given.isdisjoint(kernel.reads):
            continue
        late = [n for n in kernel.writes if touched[n][0] == number and (*touched[n], number)[1] > peak]
        late = [n for n in late if n not in kernel.sums]  # made of each row while it is read for the other stores
        chosen = [n for n in late if _is_cheap(kernel, n, given, RECOMPUTED * _bytes([n], buffers))]
        for name in chosen:
            part = part_of(kernel, (name,), buffers)
            title = kernel_name(part.origins, len(work) + sum(map(len, moved.values())), buffers)
            moved.setdefault(touched[name][1], []).append(attrs.evolve(part, name=title))
        if chosen:
            left = [name for name in kernel.writes if name not in chosen]
            units[number] = part_of(kernel, left, buffers) if left else None
    placed = ((*moved.get(number, ()), unit) for number, unit in enumerate(units))
    return [unit for group in placed for unit in group if unit is not None]


def begun(work: Sequence[Unit], loops: LoopGraph, buffers: Mapping[str, Buffer], peak: int) -> list[Unit]:
    """The work with a kernel from behind the unit number `peak` made in two: the first part stores, before the peak,
    what can be computed there in the buffer of the result, which is much less than the memory it lets go."""
    touched, written = _uses(work)
    shared = shared_memory(work)
    kept = loops.lasting.union(shared, (view.buffer for view in loops.outputs if isinstance(view, View)))
    if any(_is_input(buffers[name]) for name in written):
        return list(work)  # a unit may raise, and then the inputs are as they were
    for number in range(peak + 1, len(work)):
        kernel = work[number]
        store = _only_store(kernel)
        if not isinstance(kernel, Kernel) or store is None or store.buffer in shared:
            continue
        known = {name for name in kernel.reads if written.get(name, [-1])[-1] < peak}
        last = {name for name in known - kept if name in written and touched[name][-1] == number}
        least = BEGUN * _bytes([store.buffer], buffers)
        if touched[store.buffer][0] != number or _bytes(last, buffers) < least:
            continue
        value, gone = _largest_part(store, known, last, buffers)
        if value is None or gone < least:
            continue
        place = max((written[name][-1] for name in _loaded(value) if name in written), default=-1) + 1
        title = kernel_name(kernel.origins, len(work), buffers)
        first = with_store(attrs.evolve(kernel, name=title), attrs.evolve(store, value=value), buffers)
        rest = with_store(kernel, _continued(store, value), buffers)
        return [*work[:place], first, *work[place:number], rest, *work[number + 1 :]]
    return list(work)


def _only_store(unit: Unit) -> Store | None:
    """The store of a kernel without inner loops that makes one, at a place that it does not compute."""
    if not isinstance(unit, Kernel) or unit.inner or len(unit.stores) != 1:
        return None
    [store] = unit.stores
    return None if store.atomic or store.indirect else store


def _largest_part(
    store: Store, known: Container[str], last: set[str], buffers: Mapping[str, Buffer]
) -> tuple[Node | None, int]:
    """The part of a stored value that loads known buffers alone and the most bytes of those in `last`, of which the
    rest of the value loads none, and these bytes. It has the buffer's dtype."""
    order = postorder([store.value])
    unknown: set[Node] = set()
    for node in order:
        if (isinstance(node, Load) and node.buffer not in known) or not unknown.isdisjoint(operands(node)):
            unknown.add(node)
    # what is masked loads nothing where the condition is false
    masked = set(postorder(part for node in order if isinstance(node, Masked) for part in operands(node)))
    ends = dict.fromkeys(part for node in order if node in unknown for part in operands(node))
    dtype = buffers[store.buffer].dtype
    found = [node for node in ends if node not in unknown and node not in masked and node.dtype == dtype]

    def freed_bytes(part: Node) -> int:
        rest = {node.buffer for node in postorder([store.value], skip={part}) if isinstance(node, Load)}
        return _bytes((_loaded(part) & last) - rest, buffers)

    best = max(found, key=freed_bytes, default=None)
    return best, 0 if best is None else freed_bytes(best)


def _continued(store: Store, part: Node) -> Store:
    """The store where a part of its value is in its place already."""
    held = Load(store.buffer, store.index, part.dtype)
    table = rebuild([store.value], lambda node: held if node is part else node)
    return attrs.evolve(store, value=table[store.value])


def _loaded(node: Node) -> set[str]:
    return {each.buffer for each in postorder([node]) if isinstance(each, Load)}


def _is_cheap(kernel: Kernel, name: str, given: Container[str], limit: int) -> bool:
    """Whether what the kernel stores to a buffer is a short expression of given ones alone, of so many additions at
    most."""
    share = points((*kernel.outer, *kernel.inner))
    spent = 0
    seen: set[Node] = set()
    left = [root for store in kernel.stores if store.buffer == name for root in store_roots(store)]
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        spent += cost((node,))
        if spent * share > limit or len(seen) > INLINE_NODES:
            return False
        if isinstance(node, Load) and node.buffer not in given:
            return False
        left += operands(node)
    return True


def _uses(work: Sequence[Unit]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """The numbers of the units that read or write each buffer, and of those that write it."""
    touched: dict[str, list[int]] = {}
    written: dict[str, list[int]] = {}
    for number, unit in enumerate(work):
        for name in dict.fromkeys((*reads(unit), *writes(unit))):
            touched.setdefault(name, []).append(number)
        for name in dict.fromkeys(writes(unit)):
            written.setdefault(name, []).append(number)
    return touched, written


def _copy(kernel: Unit, name: str, buffers: Mapping[str, Buffer]) -> Kernel | None:
    """A kernel that makes the only store to a buffer from what the kernel stores elsewhere too."""
    if not isinstance(kernel, Kernel):
        return None
    found = [store for store in kernel.stores if store.buffer == name]
    if len(found) != 1 or any(isinstance(node, Load) and node.buffer == name for node in postorder(kernel.roots)):
        return None
    [store] = found
    dtype = buffers[name].dtype
    for step in kernel.passes:
        for stores, space in ((step.inner_stores, (*kernel.outer, *kernel.inner)), (step.outer_stores, kernel.outer)):
            alike = [each for each in stores if each.value is store.value and buffers[each.buffer].dtype == dtype]
            other = next((each for each in alike if each is not store), None)
            if (
                store in alike
                and other is not None
                and not any(each.atomic or each.indirect for each in (store, other))
            ):
                made = attrs.evolve(store, value=Load(other.buffer, other.index, dtype))
                passes = (Pass((), (), (made,)),)
                return Kernel(kernel.name, kernel.device, space, (), passes, (other.buffer,), (name,), kernel.sizes)
    return None


def _without(unit: Unit, name: str) -> Unit:
    """The kernel without its stores to a buffer."""
    if not isinstance(unit, Kernel):
        return unit
    passes = tuple(
        attrs.evolve(
            step,
            inner_stores=tuple(store for store in step.inner_stores if store.buffer != name),
            outer_stores=tuple(store for store in step.outer_stores if store.buffer != name),
        )
        for step in unit.passes
    )
    return attrs.evolve(unit, passes=passes, writes=tuple(each for each in unit.writes if each != name))


def _is_input(buffer: Buffer) -> bool:
    return buffer.kind is BufferKind.INPUT


def _bytes(names: Collection[str], buffers: Mapping[str, Buffer]) -> int:
    return sum(hint(bytes_of(buffers[name])) for name in names)


def reads(unit: Unit) -> tuple[str, ...]:
    return reads_of(unit) if isinstance(unit, ExternCall) else unit.reads


def writes(unit: Unit) -> tuple[str, ...]:
    return writes_of(unit) if isinstance(unit, ExternCall) else unit.writes


def is_pure(unit: Unit) -> bool:
    """Whether a unit is a kernel, or a call that draws no random numbers and writes to none of its arguments."""
    if not isinstance(unit, ExternCall):
        return True
    return not unit.mutates and unit.run is None and torch.Tag.nondeterministic_seeded not in unit.target.tags
