"""Frames in which tracing found nothing to compile: they run uncompiled until that may have changed.

Such a frame's own code is cached under guards, so that its calls cost no more than calls of compiled code. Its own code
is correct whatever the guards say: they only decide when to trace again. So they are at first those of the trace, then
only types, and in the end none.

A trace that ended at a graph break has no guards on the rest, and functions that were traced as callees have no guards
of their own. Their frames are inspected, and traced when a tensor is in reach.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator

import attrs

from armature.frame.data import FrameRequest
from armature.frame.guards.guard import Guard
from armature.frame.guards.kinds import TypeGuard
from armature.frame.sources import LocalSource, Source

EXACT = 1  # this many traces of a code object are cached under their full guards
EXACT_IF_PROMISING = 3  # the same for code with a tensor in reach
MOST_TRACES = 8  # traces that find nothing before a code object is left alone
MOST_INSPECTIONS = 8  # inspections of a function's frames with incomplete guards; after these, argument types decide
MANY_CALLS = 1_000  # calls with nothing to compile after which checking the guards costs more than it may save


@attrs.define(eq=False)
class Idle:
    """The state shared by frames that run uncompiled under the same guards. for_all: it holds for all compile
    options.

    The guard tree calls it as its last guard. It counts the calls and fails after `MANY_CALLS`, which ends the entry.
    """

    reason: str
    for_all: bool
    calls_left: float = MANY_CALLS

    def __call__(self, _: object) -> bool:
        self.calls_left -= 1
        return self.calls_left > 0

    @property
    def is_over(self) -> bool:
        """Whether the allowed number of calls is used up."""
        return self.calls_left <= 0

    def renew(self) -> None:
        """Stop counting."""
        self.calls_left = math.inf


def idle_guards(found: tuple[Guard, ...], tries: int, promising: bool) -> tuple[Guard, ...]:
    """The guards under which a frame is not traced again. Each trace that found nothing to compile leaves fewer of
    them."""
    checked = tuple(guard for guard in found if not guard.only_for_graphs)
    return checked if tries <= (EXACT_IF_PROMISING if promising else EXACT) else tuple(_types(checked))


def types_of_arguments(request: FrameRequest) -> tuple[Guard, ...]:
    """The types of the frame's arguments, for a frame that is not traced."""
    code = request.code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    given = ((name, request.locals[name]) for name in code.co_varnames[:count] if name in request.locals)
    return tuple(TypeGuard(LocalSource(name, cell=name in code.co_cellvars), type(value)) for name, value in given)


def _types(guards: tuple[Guard, ...]) -> Iterator[Guard]:
    """The types of the values read, also within containers of constants; bools, classes and code by value."""
    seen = set[Source | None]()
    for guard in guards:
        made = guard.of_type()
        if made is not None and (made.source not in seen or not (made.only_type or made.holds_type)):
            seen.add(made.source)
            yield made
