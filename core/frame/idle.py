"""Frames in which tracing found nothing to compile: they run as they are until that may have changed.

Such a frame's own code is cached under guards, so that its calls cost no more than those of compiled code, and other
arguments are looked at. Its own code is right whatever the guards say: they only tell when to trace once more. So they
are those of the trace at first, then types alone, and in the end none.

A trace that went no further than to a graph break has no guards on the rest, and functions that were traced with what
calls them have none of their own. Their frames are looked at: they are traced when a tensor is in reach.
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
DEPTH, WIDTH = 4, 32  # of containers, as far as types in them are told apart
EXACT = 1  # traces of a code object whose guards are kept as they are
EXACT_IF_PROMISING = 3  # the same where a tensor is in reach
MOST = 8  # traces that find nothing before a code object is left alone
LOOKS = 8  # at frames of a function that guards don't tell enough of, before the types of arguments decide
MANY_CALLS = 1_000  # for which nothing was to be done under the same guards; then guards are not worth their time


@attrs.define(eq=False)
class Idle:
    """What is known of frames that run as they are under the same guards. for_all: whatever the options.

    Being called is the last of the guards: it counts the calls, and ends the entry after many.
    """

    reason: str
    for_all: bool
    calls_left: float = MANY_CALLS

    def __call__(self, _: object) -> bool:
        self.calls_left -= 1
        return self.calls_left > 0

    @property
    def is_over(self) -> bool:
        """Whether there were many calls."""
        return self.calls_left <= 0

    def renew(self) -> None:
        """Count no longer."""
        self.calls_left = math.inf


def guards_to_keep(found: tuple[Guard, ...], tries: int, promising: bool) -> tuple[Guard, ...]:
    """The guards under which a frame is not traced again; the more often that was for nothing, the fewer they are."""
    kept = tuple(guard for guard in found if not isinstance(guard, GlobalStateGuard))
    return kept if tries <= (EXACT_IF_PROMISING if promising else EXACT) else tuple(_types(kept))


def types_of_arguments(request: FrameRequest) -> tuple[Guard, ...]:
    """The types of the frame's arguments, for one that is not traced."""
    code = request.code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    given = ((name, request.locals[name]) for name in code.co_varnames[:count] if name in request.locals)
    return tuple(TypeGuard(LocalSource(name, cell=name in code.co_cellvars), type(value)) for name, value in given)


def _types(guards: tuple[Guard, ...]) -> Iterator[Guard]:
    """The types of what was read, also within containers of constants; bools, classes and code as they are.

    Values are asked for their types alone: `isinstance`, and so a class pattern, reads `__class__` of objects of the
    program, which may run its code.
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
    """The type of a value, and of what it contains if it is a container: a test whether another one has the same."""

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
