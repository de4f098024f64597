"""What must run before what: who writes a buffer, who reads it, and what is overwritten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import attrs

from armature.lower.data import Argument, Buffer, BufferKind, ExternCall, LoopGraph, View
from armature.schedule.normalise import Item

Unit: TypeAlias = Item | ExternCall


def views_of(arguments: Iterable[Argument]) -> Iterable[View]:
    """All views among arguments, also those in nested tuples."""
    for argument in arguments:
        if isinstance(argument, View):
            yield argument
        elif isinstance(argument, tuple):
            yield from views_of(argument)


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

    changed: buffers written more than once, or that are not the graph's own: their loads must keep their place.
    wanted: buffers that the graph returns.
    """

    before: tuple[frozenset[int], ...]
    readers: dict[str, tuple[int, ...]]
    writers: dict[str, tuple[int, ...]]
    changed: frozenset[str]
    wanted: frozenset[str]


def dependencies(units: Sequence[Unit], loops: LoopGraph, buffers: dict[str, Buffer]) -> Dependencies:
    """Read after write, write after read and write after write, from one walk in program order."""
    before: list[frozenset[int]] = []
    writers: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    since: dict[str, list[int]] = {}  # readers since the last write
    for number, unit in enumerate(units):
        needs: set[int] = set()
        for name in reads_of(unit):
            needs.update(writers.get(name, ())[-1:])
            readers.setdefault(name, []).append(number)
            since.setdefault(name, []).append(number)
        for name in writes_of(unit):
            needs.update(writers.get(name, ())[-1:])
            needs.update(since.pop(name, ()))
            writers.setdefault(name, []).append(number)
        needs.discard(number)
        before.append(frozenset(needs))
    given = {n for n, b in buffers.items() if b.kind in (BufferKind.INPUT, BufferKind.CONSTANT)}
    changed = {name for name, found in writers.items() if len(found) > 1 or name in given}
    wanted = {view.buffer for view in loops.outputs if isinstance(view, View)}
    wanted |= {n for n, b in buffers.items() if b.kind is BufferKind.OUTPUT}
    return Dependencies(
        tuple(before),
        {name: tuple(found) for name, found in readers.items()},
        {name: tuple(found) for name, found in writers.items()},
        frozenset(changed),
        frozenset(wanted),
    )
