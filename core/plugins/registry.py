"""A registry: ranked rows by key, with a rule for collisions. Losers are stored, so that they can be shown."""

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

    Bound methods are made anew at each access: the same function bound to the same object is the same method. The id is
    unique because registries hold the object.
    """
    kind, method = type(obj), cast(Any, obj)
    if kind is MethodType:
        return (id(method.__self__), id(method.__func__))
    if kind is BuiltinFunctionType or kind is MethodWrapperType:
        return obj  # these compare and hash by the identity of the bound object
    return id(obj)


def name_of(obj: object) -> str:
    """The name of a key in messages; the name of its class, if the object's own name can't be read."""
    try:
        return _own_name(obj)
    except Exception:
        return f"an object of {describe(type(obj)).name}"


def _own_name(obj: object) -> str:
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
    """A plugin's value for a key. `precedence` decides between rows, larger wins. `subject`: the key as given."""

    subject: object
    value: T
    plugin: Plugin
    origin: RuleOrigin
    precedence: tuple[int, int, int]

    @property
    def place(self) -> str:
        """The row's origin, as printed by `armature plugins doctor`."""
        where = f" ({self.origin.file}:{self.origin.line})" if self.origin.line else ""
        return f"{self.origin.plugin}{where}"


@attrs.frozen(eq=False)
class Contest(Generic[T]):
    """Rows for one key: the winner and the losers. `tie`: the second has the same precedence."""

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
    """Rows by key. `key` makes a dict key from a row's subject: an identity for objects, the text itself for names."""

    name: str
    key: Callable[[object], Hashable]
    rows: dict[Hashable, list[Row[T]]] = attrs.field(factory=dict)

    def add(self, row: Row[T]) -> None:
        """Insert a row by precedence. Of equal rows, the one added first comes first."""
        held = self.rows.setdefault(self.key(row.subject), [])
        held.append(row)
        if len(held) > 1:
            held.sort(key=lambda r: r.precedence, reverse=True)  # stable also in reverse

    def first(self, subject: object) -> T | None:
        """The winning row for a subject."""
        held = self.rows.get(self.key(subject))
        return held[0].value if held else None

    def chain(self, subject: object) -> tuple[T, ...]:
        """All rows for a subject, the winner first."""
        return tuple(row.value for row in self.rows.get(self.key(subject), ()))

    def winners(self) -> Iterator[Row[T]]:
        """The winning row for each key."""
        return (held[0] for held in self.rows.values())

    def all_rows(self) -> Iterator[Row[T]]:
        """Every row, including losers."""
        return (row for held in self.rows.values() for row in held)

    def count(self, plugin: Plugin) -> int:
        """The number of rows from a plugin."""
        return sum(row.plugin is plugin for row in self.all_rows())

    def contests(self) -> Iterator[Contest[T]]:
        """Keys with more than one row."""
        for held in self.rows.values():
            if len(held) > 1:
                yield Contest(self.name, name_of(held[0].subject), held[0], tuple(held[1:]))
