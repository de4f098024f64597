"""What classes of the program inherit from types written in C."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import attrs

from armature.introspection import is_written_in_c

V = TypeVar("V")


@attrs.define(eq=False)
class TypeRules(Generic[V]):
    """What the classes of one trace inherit.

    bases: the types of which an object of a derived class has a value of its own, with what makes that value: types of
    the language, and types of plugins' rows with `base`. atoms: the types of constants, those of plugins' rows among
    them. handler, row_of_class: look up a plugin's row. chooses_class: see `Functions`.
    """

    bases: Mapping[type, Callable[..., V]]
    atoms: frozenset[type]
    handler: Callable[[object], Any]
    row_of_class: Callable[[type], Any]
    chooses_class: Callable[[type, str], bool]
    _own: dict[tuple[type, str], bool] = attrs.field(factory=dict)

    def is_atom(self, obj: object) -> bool:
        """Whether the object is a constant by itself."""
        return type(obj) in self.atoms or issubclass(type(obj), enum.Enum)

    def base_of(self, cls: type) -> type | None:
        """The type of `bases` that a class derives from. None if there is none, or another C class is in between, which
        may change its behaviour, as numpy's scalars do."""
        in_c = next((base for base in cls.__mro__ if base in self.bases or is_written_in_c(base)), None)
        return in_c if in_c in self.bases else None

    def instance_of(self, cls: type) -> V | None:
        """The value of an object that `object.__new__` has made, as the row of a base class says; None without one."""
        row = self.row_of_class(cls)
        return None if row is None or row.instance is None else row.instance(cls)

    def has_own(self, cls: type, name: str) -> bool:
        """Whether a class replaces a method of `object`, such as `__setattr__`. A method of one of `bases`, or one with
        the same handler as `object`'s, behaves like `object`'s."""
        known = self._own.get((cls, name))
        if known is None:
            holder = next(base for base in cls.__mro__ if name in base.__dict__)
            rows = [self.handler(vars(at)[name]) for at in (holder, object)]
            same = holder is object or holder in self.bases or (None not in rows and rows[0].fn is rows[1].fn)
            known = self._own[cls, name] = not same
        return known
