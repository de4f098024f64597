"""Work whose results only leave the graph, moved to its end where that lowers the peak of memory.

Backward makes the gradient of a weight where it has the operands. Where that gradient is larger than what it lets go,
as with few rows, it would wait in memory while the rest of backward runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch

from armature.lower.data import Buffer, BufferKind, ExternCall, LoopGraph, View
from armature.lower.index import hint
from armature.lower.sharing import shared_memory
from armature.schedule.data import Work
from armature.schedule.dependencies import reads_of, writes_of
from armature.schedule.score import bytes_of

Unit: TypeAlias = Work | ExternCall


def postponed(work: Sequence[Unit], loops: LoopGraph, buffers: Mapping[str, Buffer]) -> list[Unit]:
    """The work with such units last, in their order."""
    returned = {view.buffer for view in loops.outputs if isinstance(view, View)}
    shared = shared_memory(work)
    last = {name: number for number, unit in enumerate(work) for name in (*_reads(unit), *_writes(unit))}
    written = {name: number for number, unit in enumerate(work) for name in _writes(unit)}
    inputs = [number for name, number in written.items() if buffers[name].kind is BufferKind.INPUT]

    def waits(number: int, unit: Unit) -> bool:
        made, read = _writes(unit), _reads(unit)
        if not returned.issuperset(made) or not all(last[name] == number for name in made) or not _is_pure(unit):
            return False
        if not shared.keys().isdisjoint((*made, *read)) or any(written.get(name, -1) > number for name in read):
            return False
        if inputs and max(inputs) > number:
            return False  # the unit may raise, and then the inputs are as they were
        new = [name for name in made if buffers[name].kind is not BufferKind.INPUT]
        gone = [name for name in read if last[name] == number and name not in returned]
        return len(new) == len(made) and _bytes(new, buffers) > _bytes(gone, buffers)

    late = [number for number, unit in enumerate(work) if waits(number, unit)]
    held = set(late)
    return [unit for number, unit in enumerate(work) if number not in held] + [work[number] for number in late]


def _bytes(names: Sequence[str], buffers: Mapping[str, Buffer]) -> int:
    return sum(hint(bytes_of(buffers[name])) for name in names)


def _reads(unit: Unit) -> tuple[str, ...]:
    return reads_of(unit) if isinstance(unit, ExternCall) else unit.reads


def _writes(unit: Unit) -> tuple[str, ...]:
    return writes_of(unit) if isinstance(unit, ExternCall) else unit.writes


def _is_pure(unit: Unit) -> bool:
    """Whether a unit is a kernel, or a call that draws no random numbers and writes to none of its arguments."""
    if not isinstance(unit, ExternCall):
        return True
    return not unit.mutates and unit.run is None and torch.Tag.nondeterministic_seeded not in unit.target.tags
