"""Writes to part of a tensor in place, instead of writing to a copy of it that is finally copied back.

A functional graph has `x[i] = v` as a copy of `x`, a write to the copy, and, if `x` is an input, a copy of all of it
back into `x`. If nothing else needs the old tensor, the write goes into `x` itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

import attrs

from armature.lower.data import Argument, Buffer, BufferKind, ExternCall, Load, LoopGraph, Node, View
from armature.lower.sharing import shared_memory
from armature.schedule.dependencies import Unit, reads_of, writes_of
from armature.schedule.memory import same_layout
from armature.schedule.normalise import Item
from armature.schedule.walk import rebuild, rename_store, store_roots


def _argument(value: Argument, name_of: Callable[[str], str]) -> Argument:
    if isinstance(value, View):
        return attrs.evolve(value, buffer=name_of(value.buffer))
    return tuple(_argument(one, name_of) for one in value) if isinstance(value, tuple) else value


@attrs.frozen
class Copy:
    """A unit that only copies all of a buffer into another one of the same layout."""

    place: int
    source: str
    target: str


def written_in_place(units: Sequence[Unit], loops: LoopGraph, buffers: dict[str, Buffer]) -> list[Unit]:
    """The units without unnecessary copies. Merged buffers are removed from `buffers`."""
    copies = [copy for place, unit in enumerate(units) if (copy := _copy(place, unit, buffers)) is not None]
    if not copies:
        return list(units)
    work = _Merging(units, loops, buffers, {copy.place: copy for copy in copies})
    for copy in reversed(copies):  # the last of several writes first: it may end in the copy before it
        work.merge(copy.place)
    if not work.names:
        return list(units)
    for name in work.names:
        del buffers[name]
    return [_renamed(unit, work.names) for place, unit in enumerate(units) if place not in work.removed]


def _copy(place: int, unit: Unit, buffers: Mapping[str, Buffer]) -> Copy | None:
    if not isinstance(unit, Item) or not unit.plain or unit.inner or len(unit.stores) != 1:
        return None
    [store] = unit.stores
    value = store.value
    if not isinstance(value, Load) or value.indirect or store.indirect or store.atomic or value.index != store.index:
        return None
    alike = value.buffer != store.buffer and same_layout(buffers[value.buffer], buffers[store.buffer])
    return Copy(place, value.buffer, store.buffer) if alike else None


class _Merging:
    """Which buffers are merged. `names`: the replacement of each removed buffer. `removed`: units that are not
    needed any more."""

    def __init__(
        self, units: Sequence[Unit], loops: LoopGraph, buffers: Mapping[str, Buffer], copies: dict[int, Copy]
    ) -> None:
        self.buffers = buffers
        self.copies = copies
        self.names: dict[str, str] = {}
        self.removed: set[int] = set()
        self.reads: dict[str, list[int]] = {}
        self.writes: dict[str, list[int]] = {}
        self.shared = shared_memory(units)
        self.returned = {view.buffer for view in loops.outputs if isinstance(view, View)}
        for place, unit in enumerate(units):
            for name in reads_of(unit):
                self.reads.setdefault(name, []).append(place)
            for name in writes_of(unit):
                self.writes.setdefault(name, []).append(place)

    def merge(self, place: int) -> None:
        """Let writes go to the source of a copy instead, where the source's old elements are not needed any more."""
        copy = self.copies[place]
        old, new = copy.source, copy.target
        written = self.writes[new]
        if old == new or len(written) < 2 or written[0] != place or old in self.shared or new in self.shared:
            return
        if self.buffers[new].kind not in (BufferKind.TEMP, BufferKind.OUTPUT):
            return
        touched = sorted((*self.reads.get(old, ()), *self.writes.get(old, ())))
        later = touched[bisect_left(touched, place + 1) :]
        drop = {place}
        keep, drops = old, new
        if self.buffers[old].kind is BufferKind.INPUT:
            if new in self.returned:
                return
            back = self.copies.get(later[0]) if later else None
            if back is None or (back.source, back.target) != (new, old) or written[-1] > back.place:
                return
            if later.count(back.place) > 1 or self.writes[old][-1] != back.place:
                return
            drop.add(back.place)
        elif later or old in self.returned or self.buffers[old].kind is not BufferKind.TEMP:
            return
        elif new in self.returned:
            keep, drops = new, old
        self.removed |= drop
        self.join(keep, drops)

    def join(self, old: str, new: str) -> None:
        """Record that `new` now means `old`."""
        self.names[new] = old
        for table in (self.reads, self.writes):
            both = (*table.get(old, ()), *table.pop(new, ()))
            table[old] = sorted(place for place in both if place not in self.removed)
        for place, copy in self.copies.items():
            source, target = (old if name == new else name for name in (copy.source, copy.target))
            self.copies[place] = attrs.evolve(copy, source=source, target=target)


def _renamed(unit: Unit, names: Mapping[str, str]) -> Unit:
    """The unit with buffers renamed."""
    if names.keys().isdisjoint((*reads_of(unit), *writes_of(unit))):
        return unit

    def name_of(name: str) -> str:
        while name in names:
            name = names[name]
        return name

    if isinstance(unit, ExternCall):
        args, kwargs = (
            tuple(_argument(one, name_of) for one in unit.args),
            {k: _argument(v, name_of) for k, v in unit.kwargs.items()},
        )
        outputs = tuple(None if name is None else name_of(name) for name in unit.outputs)
        mutates = tuple(map(name_of, unit.mutates))
        return attrs.evolve(unit, args=args, kwargs=kwargs, outputs=outputs, mutates=mutates)

    def change(node: Node) -> Node:
        return attrs.evolve(node, buffer=name_of(node.buffer)) if isinstance(node, Load) else node

    table = rebuild([root for store in unit.stores for root in store_roots(store)], change)
    stores = (rename_store(store, {}, table) for store in unit.stores)
    return unit.with_stores(attrs.evolve(store, buffer=name_of(store.buffer)) for store in stores)
