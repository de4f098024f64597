"""Units around the peak of memory in another order, where that lowers it.

In backward, the gradient of a weight and that of a layer's input need the same operand. The one that lets go more
memory than it takes goes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from armature.lower.data import Buffer, BufferKind, LoopGraph, View
from armature.lower.index import hint
from armature.lower.sharing import shared_memory
from armature.schedule.late import Unit, is_pure, reads, writes
from armature.schedule.score import NEAR_THE_PEAK, bytes_of


def swapped(work: Sequence[Unit], loops: LoopGraph, buffers: Mapping[str, Buffer], peak: int) -> list[Unit]:
    """The work with neighbours near the unit number `peak` exchanged where both together then need less at most."""
    unfreed = loops.lasting.union(view.buffer for view in loops.outputs if isinstance(view, View))
    line = _Line(list(work), buffers, unfreed, frozenset(shared_memory(work)))
    low, high = max(0, peak - NEAR_THE_PEAK), min(len(work), peak + NEAR_THE_PEAK + 1)
    for start in range(low, high - 1):
        place = start
        while place >= low and line.improves(place):
            line.exchange(place)
            place -= 1
    return line.units


@attrs.define(eq=False)
class _Line:
    """Units in their order. unfreed: buffers that leave, or that others hold. last: the place of each buffer's last
    use; first: that of its first one."""

    units: list[Unit]
    buffers: Mapping[str, Buffer]
    unfreed: frozenset[str]
    shared: frozenset[str]
    first: dict[str, int] = attrs.field(factory=dict)
    last: dict[str, int] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for place, unit in enumerate(self.units):
            for name in (*reads(unit), *writes(unit)):
                self.first.setdefault(name, place)
                self.last[name] = place

    def improves(self, place: int) -> bool:
        """Whether the unit there and the next one need less memory at most in the other order."""
        left, right = self.units[place], self.units[place + 1]
        if not self.are_independent(left, right):
            return False
        touched = self.touched(left, right)
        ends = {name for name in touched if self.last[name] in (place, place + 1) and self.is_released(name)}
        gone = [self.bytes(ends & (self.touched(one) - self.touched(other))) for one, other in both(left, right)]
        made = [self.bytes({n for n in writes(unit) if self.first[n] in (place, place + 1)}) for unit in (left, right)]
        now = max(made[0], made[0] - gone[0] + made[1])
        return max(made[1], made[1] - gone[1] + made[0]) < now

    def exchange(self, place: int) -> None:
        """Let the unit run after the next one."""
        left, right = self.units[place], self.units[place + 1]
        self.units[place : place + 2] = [right, left]
        for one, other in both(left, right):
            to = place + 1 if one is left else place
            for name in self.touched(one) - self.touched(other):
                for table in (self.first, self.last):
                    if table[name] in (place, place + 1):
                        table[name] = to

    def are_independent(self, left: Unit, right: Unit) -> bool:
        """Whether nobody can tell in which order the two run."""
        touched = self.touched(left, right)
        if not (is_pure(left) and is_pure(right)) or not self.shared.isdisjoint(touched):
            return False
        written = {*writes(left), *writes(right)}
        if any(self.buffers[name].kind is BufferKind.INPUT for name in written):
            return False  # a call may raise, and then the inputs are as they were
        return self.touched(left).isdisjoint(writes(right)) and self.touched(right).isdisjoint(writes(left))

    def is_released(self, name: str) -> bool:
        """Whether the buffer's memory is given back after its last use."""
        return name not in self.unfreed and self.buffers[name].kind is not BufferKind.CONSTANT

    def touched(self, *units: Unit) -> set[str]:
        """Buffers that the units read or write."""
        return {name for unit in units for name in (*reads(unit), *writes(unit))}

    def bytes(self, names: set[str]) -> int:
        """Bytes of all these buffers."""
        return sum(hint(bytes_of(self.buffers[name])) for name in names)


def both(left: Unit, right: Unit) -> tuple[tuple[Unit, Unit], tuple[Unit, Unit]]:
    """Each of the two with the other one."""
    return (left, right), (right, left)
