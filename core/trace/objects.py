"""The objects that a trace has met, and their values."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs

if TYPE_CHECKING:
    from armature.frame.sources import Source

V = TypeVar("V")
T = TypeVar("T")
C = TypeVar("C")


@attrs.define(eq=False)
class Objects(Generic[V, T, C]):
    """The values V of objects: one for each object that has an identity, so that `is` on objects is `is` on values.

    by_id: values by the ids of their objects, which are held so that ids stay unique. by_fake: tensors T by the ids of
    their fakes. cells: known cells C of the program, by id; free: those of the outermost frame's free variables.
    class_values: values of class attributes. keys: values looked up in dicts and sets by identity. held_weakly: objects
    that new weak references refer to; whether one has a callback. called: ids of modules that were called. own_lookups:
    sources of objects whose classes customise attribute lookup. wrap: returns the value of an object of the program
    that is found at a source, with the guards that it needs.
    """

    by_id: dict[int, tuple[object, V]] = attrs.field(factory=dict)
    by_fake: dict[int, T] = attrs.field(factory=dict)
    cells: dict[int, C] = attrs.field(factory=dict)
    free: dict[str, C] = attrs.field(factory=dict)
    class_values: dict[Hashable, V] = attrs.field(factory=dict)
    keys: dict[V, None] = attrs.field(factory=dict)
    held_weakly: dict[V, bool] = attrs.field(factory=dict)
    called: set[int] = attrs.field(factory=set)
    own_lookups: set[Source] = attrs.field(factory=set)
    wrap: Callable[[object, Source], V] = attrs.field(init=False)

    def remember(self, obj: object, value: V) -> V:
        """Record the value of an object that has an identity; from then on, wrapping the object returns this value."""
        self.by_id[id(obj)] = (obj, value)
        return value
