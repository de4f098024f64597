"""A registry: rows by key, ranked, with a rule for collisions. A loser is kept, so that it can be shown."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from types import BuiltinFunctionType, MethodType, MethodWrapperType
from typing import Any, Generic, TypeVar, cast

import attrs

from armature.introspection import describe
from armature.plugins.calls import Plugin
from armature.rules.data import RuleOrigin

T = TypeVar("T")


def identity_key(obj: object) -> Hashable:
    """A key that is equal for the same object only, and never runs code of the object's class.

    Bound methods are made anew at each access: the same function bound to the same object is the same method.
    The id is sound as long as the registered object lives, and registries hold it.
    """
    kind, method = type(obj), cast(Any, obj)
    if kind is MethodType:
        return (id(method.__self__), id(method.__func__))
    if kind is BuiltinFunctionType or kind is MethodWrapperType:
        return obj  # these compare and hash by the identity of what they are bound to
    return id(obj)


def name_of(obj: object) -> str:
    """How a key is called in messages; of an object that refuses to tell, the class."""
    try:
        return _told_name(obj)
    except Exception:
        return f"an object of {describe(type(obj)).name}"


def _told_name(obj: object) -> str:
    if isinstance(obj, str):
        return obj
    if isinstance(obj, tuple):
        return " ".join(name for part in obj if (name := name_of(part)))
    qualname = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    if not isinstance(qualname, str):
        return repr(obj)
    module = getattr(obj, "__module__", None)
    return f"{module}.{qualname}" if isinstance(module, str) and module else qualname


@attrs.frozen(eq=False)
class Row(Generic[T]):
    """A value a plugin gave for a key. `precedence` decides between rows, larger wins. `subject`: the key as given."""

    subject: object
    value: T
    plugin: Plugin
    origin: RuleOrigin
    precedence: tuple[int, int, int]

    @property
    def place(self) -> str:
        """Who gave it and where, as `armature plugins doctor` prints it."""
        where = f" ({self.origin.file}:{self.origin.line})" if self.origin.line else ""
        return f"{self.origin.plugin}{where}"


@attrs.frozen(eq=False)
class Contest(Generic[T]):
    """Rows for one key: the one that answers, and those that lost. `tie`: the second has the same precedence."""

    table: str
    key: str
    winner: Row[T]
    losers: tuple[Row[T], ...]

    @property
    def tie(self) -> bool:
        """Whether only the order of registration decided."""
        return self.losers[0].precedence == self.winner.precedence


@attrs.define(eq=False)
class Registry(Generic[T]):
    """Rows by key. `key` makes a dict key of what a row is for: an identity for objects, the text itself for names."""

    name: str
    key: Callable[[object], Hashable]
    rows: dict[Hashable, list[Row[T]]] = attrs.field(factory=dict)

    def add(self, row: Row[T]) -> None:
        """Put a row in its place. Among equals the first that came stays first."""
        held = self.rows.setdefault(self.key(row.subject), [])
        held.append(row)
        if len(held) > 1:
            held.sort(key=lambda r: r.precedence, reverse=True)  # stable also in reverse

    def first(self, subject: object) -> T | None:
        """The row that answers for a subject."""
        held = self.rows.get(self.key(subject))
        return held[0].value if held else None

    def chain(self, subject: object) -> tuple[T, ...]:
        """All rows for a subject, the one that answers first."""
        return tuple(row.value for row in self.rows.get(self.key(subject), ()))

    def winners(self) -> Iterator[Row[T]]:
        """The row that answers, for each key."""
        return (held[0] for held in self.rows.values())

    def all_rows(self) -> Iterator[Row[T]]:
        """Every row, losers too."""
        return (row for held in self.rows.values() for row in held)

    def count(self, plugin: Plugin) -> int:
        """How many rows a plugin gave."""
        return sum(row.plugin is plugin for row in self.all_rows())

    def contests(self) -> Iterator[Contest[T]]:
        """Keys that more than one row wants."""
        for held in self.rows.values():
            if len(held) > 1:
                yield Contest(self.name, name_of(held[0].subject), held[0], tuple(held[1:]))
