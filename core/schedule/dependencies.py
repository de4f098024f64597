"""Dependencies between units: which unit writes a buffer, which ones read it, and what is overwritten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs

from armature.lower.data import Buffer, BufferKind, ExternCall, LoopGraph, View
from armature.lower.draws import keeps_its_turn
from armature.lower.sharing import shared_memory, views_of
from armature.schedule.normalise import Item

Unit: TypeAlias = Item | ExternCall


def reads_of(unit: Unit) -> tuple[str, ...]:
    """Buffers that the unit reads, each once."""
    if isinstance(unit, Item):
        return tuple(dict.fromkeys(load.buffer for load in unit.loads))
    return tuple(dict.fromkeys(view.buffer for view in views_of((*unit.args, *unit.kwargs.values()))))


def writes_of(unit: Unit) -> tuple[str, ...]:
    """Buffers that the unit writes."""
    if isinstance(unit, Item):
        return unit.writes
    return (*(name for name in unit.outputs if name is not None), *unit.mutates)


@attrs.frozen
class Dependencies:
    """before: per unit (by position), the units that must run earlier. readers, writers: positions per buffer.

    changed: buffers whose memory is written more than once, or is not the graph's own; their loads can't be moved.
    wanted: buffers that the graph returns. memory: for buffers that share memory, its name in `shared_memory`.
    """

    before: tuple[frozenset[int], ...]
    readers: dict[str, tuple[int, ...]]
    writers: dict[str, tuple[int, ...]]
    changed: frozenset[str]
    wanted: frozenset[str]
    memory: Mapping[str, str]

    def meet(self, stored: Iterable[str], touched: Iterable[str]) -> bool:
        """Whether one of the two stores to memory that the other touches under another name."""
        if not self.memory:
            return False
        places = {self.memory[name]: name for name in stored if name in self.memory}
        return any(places.get(self.memory.get(name, ""), name) != name for name in touched)


def dependencies(units: Sequence[Unit], loops: LoopGraph, buffers: dict[str, Buffer]) -> Dependencies:
    """Read after write, write after read, write after write, and ordered calls, from one walk in program order."""
    before: list[frozenset[int]] = []
    writers: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    memory = shared_memory(units)
    written: dict[str, list[int]] = {}  # units that write a memory; an operator that returns a part of it does not
    since: dict[str, list[int]] = {}  # readers of a memory since the last write
    turn: int | None = None  # the last unit that must keep its position in the program's order
    for number, unit in enumerate(units):
        needs: set[int] = set()
        if isinstance(unit, ExternCall) and keeps_its_turn(unit):
            needs.update(() if turn is None else (turn,))
            turn = number
        for name in reads_of(unit):
            place = memory.get(name, name)
            needs.update((*writers.get(name, ())[-1:], *written.get(place, ())[-1:]))
            readers.setdefault(name, []).append(number)
            since.setdefault(place, []).append(number)
        for name in writes_of(unit):
            place = memory.get(name, name)
            writers.setdefault(name, []).append(number)
            if name in memory and isinstance(unit, ExternCall) and name not in unit.mutates:
                continue
            needs.update(written.get(place, ())[-1:])
            needs.update(since.pop(place, ()))
            written.setdefault(place, []).append(number)
        needs.discard(number)
        before.append(frozenset(needs))
    given = {memory.get(n, n) for n, b in buffers.items() if b.kind in (BufferKind.INPUT, BufferKind.CONSTANT)}
    places = {place for place, found in written.items() if len(found) > 1 or place in given}
    changed = {name for name in buffers if memory.get(name, name) in places} if places else ()
    wanted = {view.buffer for view in loops.outputs if isinstance(view, View)}
    wanted |= {n for n, b in buffers.items() if b.kind is BufferKind.OUTPUT}
    return Dependencies(
        tuple(before),
        {name: tuple(found) for name, found in readers.items()},
        {name: tuple(found) for name, found in writers.items()},
        frozenset(changed),
        frozenset(wanted),
        memory,
    )


def used(units: Sequence[Unit], deps: Dependencies) -> list[Unit]:
    """The units, except loops whose results are never read. `deps` was computed for `units`."""
    needed: set[int] = set()
    for number in reversed(range(len(units))):
        unit = units[number]
        for name in writes_of(unit):
            if name in deps.wanted or name in deps.changed or not needed.isdisjoint(deps.readers.get(name, ())):
                needed.add(number)
        if isinstance(unit, ExternCall):  # it may have effects besides its results
            needed.add(number)
    return [unit for number, unit in enumerate(units) if number in needed]
