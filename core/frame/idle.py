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
from collections.abc import Iterable, Iterator
from itertools import islice
from types import CodeType
from typing import cast

import attrs

from armature.frame.data import FrameRequest
from armature.frame.guards.guard import Guard
from armature.frame.guards.kinds import GlobalStateGuard, IdGuard, MetadataGuard, TypeGuard, ValueGuard
from armature.frame.sources import LocalSource, Source

CONTAINERS = (tuple, list, set, frozenset, dict)
DEPTH, WIDTH = 4, 32  # how deep, and for how many items, the types in containers are compared
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
    checked = tuple(guard for guard in found if not isinstance(guard, GlobalStateGuard))
    return checked if tries <= (EXACT_IF_PROMISING if promising else EXACT) else tuple(_types(checked))


def types_of_arguments(request: FrameRequest) -> tuple[Guard, ...]:
    """The types of the frame's arguments, for a frame that is not traced."""
    code = request.code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    given = ((name, request.locals[name]) for name in code.co_varnames[:count] if name in request.locals)
    return tuple(TypeGuard(LocalSource(name, cell=name in code.co_cellvars), type(value)) for name, value in given)


def _types(guards: tuple[Guard, ...]) -> Iterator[Guard]:
    """The types of the values read, also within containers of constants; bools, classes and code by value.

    Only `type` is applied to values: `isinstance`, and so a class pattern, reads `__class__` of the program's objects,
    which may run its code.
    """
    seen = set[Source]()
    for guard in guards:
        match guard:
            case TypeGuard(source):
                made: Guard = guard
            case ValueGuard(source, value) if type(value) is bool:
                made = guard
            case IdGuard(source, value) if issubclass(type(value), (type, CodeType)):
                made = guard
            case ValueGuard(source, value) if issubclass(type(value), CONTAINERS):
                made = MetadataGuard(source, Form(value), guard.user)
            case ValueGuard(source, value) | IdGuard(source, value):
                made = TypeGuard(source, type(value), guard.user)
            case _:
                continue
        if source not in seen or isinstance(made, MetadataGuard):
            seen.add(source)
            yield made


class Form:
    """A test whether a value has the recorded type and, for a container, contents of the recorded types."""

    def __init__(self, value: object) -> None:
        self.form = _form(value)

    def __call__(self, value: object) -> bool:
        return _form(value) == self.form


def _form(value: object, depth: int = 0) -> object:
    kind = type(value)
    if depth == DEPTH or not issubclass(kind, CONTAINERS):
        return kind
    items = (
        dict.values(cast("dict[object, object]", value)) if issubclass(kind, dict) else cast("Iterable[object]", value)
    )
    return kind, frozenset(_form(item, depth + 1) for item in islice(items, WIDTH))
