"""The stack that generated code needs."""

from __future__ import annotations

from collections.abc import Iterable

from bytecode import Instr, Label
from bytecode.instr import TryBegin

SPARE = 4  # slack for what stack effects don't show: a generator starts with a value, and a handler may lack a depth


def stack_size(items: Iterable[object]) -> int:
    """Room for the deepest stack of instructions, labels and handlers, found in one pass.

    Jumps back add nothing, since each pass through a loop leaves the stack as it found it. For an exception handler,
    the depth that it states is used, or else the depth where its `try` begins. (`bytecode` follows every path through
    the code, which takes long.)
    """
    depth = most = 0
    at_labels: dict[int, int] = {}
    runs_on = True

    def reaches(label: object, reached: int) -> None:
        at_labels[id(label)] = max(reached, at_labels.get(id(label), 0))

    for item in items:
        if isinstance(item, Label):
            depth = max(depth if runs_on else 0, at_labels.get(id(item), 0))
            runs_on = True
        # the handler starts with the exception on the stack, and perhaps the offset where it was raised
        elif isinstance(item, TryBegin):
            stated = item.stack_depth if isinstance(item.stack_depth, int) else depth
            reaches(item.target, stated + 1 + item.push_lasti)
        elif isinstance(item, Instr):
            if item.has_jump():
                reaches(item.arg, depth + item.stack_effect(jump=True))
            depth += item.stack_effect(jump=False)
            runs_on = not (item.is_final() or item.is_uncond_jump())
        most = max(most, depth)
    return most + SPARE
