"""The instructions that run as they are along with the one at which a graph breaks, and the state at each of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from types import CodeType
from typing import TypeAlias

from armature.trace.bytecode.instructions import Instruction, decode
from armature.trace.resume.liveness import NO_NEXT, accesses, live_at
from armature.trace.resume.stack_layout import Layout, Slot, after

State: TypeAlias = tuple[int, Layout, frozenset[str]]
"""A position, the layout of the stack there, and the variables that are bound."""
States: TypeAlias = dict[int, tuple[Layout, frozenset[str]]]


def next_states(inst: Instruction, state: State) -> Iterator[State]:
    """The states in which an instruction may leave a frame: at the next one, where it jumps to, at its handler."""
    position, layout, bound = state
    now = bound.union(accesses(inst)[1])
    if inst.opname not in NO_NEXT:
        yield position + 1, after(inst, layout), now
    if inst.target >= 0:
        yield inst.target, after(inst, layout, jump=True), now
    if (kept := inst.protection) is not None:
        yield kept.target, (*layout[: kept.depth], *[Slot.LAST_INSTRUCTION] * kept.push_lasti, Slot.VALUE), bound


def states_of(code: CodeType, steps: Collection[int], start: State) -> States:
    """The states at those of the steps that may run after the instruction at `start`, and where they end. Empty if one
    of these positions has no certain state: the stack or the variables depend on how it is reached."""
    instructions, found = decode(code), States()
    todo = [*next_states(instructions[start[0]], start)]
    while todo:
        position, layout, bound = todo.pop()
        known = found.get(position)
        if known is not None and known[0] != layout:
            return {}
        now = bound if known is None else bound & known[1]
        if known is None or now != known[1]:
            found[position] = (layout, now)
            if position in steps:
                todo += next_states(instructions[position], (position, layout, now))
    set_here = {name for step in found if step in steps for name in accesses(instructions[step])[1]}
    untouched = max(0, min((len(layout) for layout, _ in found.values()), default=1) - 1)  # what the frame held before
    for position in found.keys() - steps:
        layout, bound = found[position]
        if Slot.NULL in layout[untouched:] or not bound.issuperset(set_here & live_at(code, position)):
            return {}
    return found
