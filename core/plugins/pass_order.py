"""Orders passes by their `before` and `after`, and otherwise by the order of the plugins."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from graphlib import CycleError, TopologicalSorter

from armature.errors import PassOrderCycle, PluginError
from armature.graph.data import Pass
from armature.plugins.registry import Row


def in_order(stage: str, rows: Sequence[Row[Pass]], report: Callable[[PluginError], None]) -> tuple[Pass, ...]:
    """The passes of one stage in execution order. Names that no installed pass has are ignored.

    A cycle is reported, and the passes then run in the order of their plugins.
    """
    named = {row.value.name: position for position, row in enumerate(rows)}
    sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(named.values(), ()))
    for row in rows:
        here = named[row.value.name]
        sorter.add(here, *(named[name] for name in row.value.after if name in named))
        for name in row.value.before:
            if name in named:
                sorter.add(named[name], here)
    try:
        sorter.prepare()
    except CycleError as error:
        cycle: list[int] = error.args[1]
        names = " before ".join(rows[position].value.name for position in cycle)
        facts = rows[cycle[0]].plugin.facts | {"hook": "armature_passes"}
        report(PassOrderCycle(stage=stage, cycle=names, **facts))
        return tuple(row.value for row in rows)
    return tuple(rows[position].value for position in drained(sorter))


def drained(sorter: TopologicalSorter[int]) -> list[int]:
    """A topological order of all positions, with the smallest available position first."""
    order: list[int] = []
    ready = list(sorter.get_ready())
    heapq.heapify(ready)
    while ready:
        position = heapq.heappop(ready)
        order.append(position)
        sorter.done(position)
        for freed in sorter.get_ready():
            heapq.heappush(ready, freed)
    return order
