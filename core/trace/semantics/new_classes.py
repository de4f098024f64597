"""Classes that only tracing made: their bases are not to list them in `__subclasses__()`."""

from __future__ import annotations

import contextlib
import functools
import itertools
import types
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs

from armature.frame.sources import ObjectSource, Source
from armature.trace.errors import GraphBreak
from armature.trace.semantics.class_bodies import LocalClassValue
from armature.trace.trust import is_trusted
from armature.trace.values.classes import ClassValue

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace
    from armature.trace.values.base import Value

HEAP_TYPE = 1 << 9  # in `__flags__`: made by `class`, not in C


@contextlib.contextmanager
def let_go(tracer: Trace) -> Iterator[None]:
    """Afterwards no base lists a class that the trace has made, except where a guard reads through it."""
    try:
        yield
    finally:
        if made := [value.cls for value in made_classes(tracer)]:
            read = set(map(id, read_by_guards(tracer)))
            kept = {id(base) for cls in made if id(cls) in read for base in cls.__mro__}
            for cls in reversed(made):
                if id(cls) not in kept:
                    detach(cls)


def made_classes(tracer: Trace) -> list[LocalClassValue]:
    """The classes that the trace has made, the oldest first."""
    return [value for _, value in tracer.by_id.values() if isinstance(value, LocalClassValue)]


def read_by_guards(tracer: Trace) -> Iterator[object]:
    """Objects that the guards of a trace begin at or ask about."""
    for guard in tracer.guards.records.values():
        for field in fields_of(guard):
            yield from roots(getattr(guard, field.name))


def roots(fact: Any) -> Iterator[object]:
    """What a fact of a guard begins at."""
    if isinstance(fact, ObjectSource):
        yield fact.obj
    elif isinstance(fact, Source):
        for field in fields_of(fact):
            yield from roots(getattr(fact, field.name))
    elif isinstance(fact, functools.partial):
        yield from fact.args
    elif isinstance(fact, tuple):
        for part in fact:
            yield from roots(part)
    else:
        yield fact


def fields_of(record: Any) -> Iterator[Any]:
    """The fields of a record."""
    return iter(attrs.fields(type(record)))


def detach(cls: type) -> None:
    """Give a class another base than those it was made with."""
    solid = next(base for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE)
    library = next(base for base in cls.__mro__ if is_trusted(base))
    for base, slots in itertools.product((solid, library), (False, True)):
        with contextlib.suppress(TypeError):  # where its objects lie otherwise in memory
            cls.__bases__ = (nobody(base, slots),)
            return


@functools.lru_cache(maxsize=256)
def nobody(base: type, slots: bool) -> type:
    """A class that derives from one of the library's and from none of the program's."""
    return types.new_class("Nobody", (base,), exec_body=lambda names: names.update({"__slots__": ()} if slots else {}))


@attrs.frozen(eq=False, repr=False)
class Listed:
    """The classes that derive from one, not kept alive: as before if all are the same ones."""

    references: tuple[weakref.ref[type], ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Listed) or len(self.references) != len(other.references):
            return False
        pairs = [(one(), another()) for one, another in zip(self.references, other.references)]
        return all(one is another and one is not None for one, another in pairs)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"[{', '.join(getattr(one(), '__qualname__', '?') for one in self.references)}]"


def listed(cls: type) -> Listed:
    """What `cls.__subclasses__()` lists now."""
    return Listed(tuple(map(weakref.ref, type.__subclasses__(cls))))


def subclasses(tracer: Trace, cls: Value) -> Value:
    """`type.__subclasses__`, guarded. Where the frame makes such classes, Python is to make them and tell of them."""
    made: LocalClassValue | None = None
    if isinstance(cls, ClassValue):
        made = next((value for value in made_classes(tracer) if issubclass(value.cls, cls.cls)), None)
        if made is None and type(cls.cls).__subclasses__ is type.__subclasses__:
            found: list[type] = type.__subclasses__(cls.cls)
            tracer.guards.answers(listed, (cls.cls,), {}, listed(cls.cls))
            return tracer.as_value(found)
    try:
        tracer.graph_break("unsupported-call", callable="type.__subclasses__")
    except GraphBreak as stop:
        if made is not None:
            stop.places = made.made_at
        raise


ASKS: dict[Any, Any] = {type.__subclasses__: subclasses}
