"""Verdicts kept per object, by identity: each goes when its object goes, so that a reused id is not mistaken for it.

Most objects are watched by a weak reference. Of those that cannot have one, methods of classes in C live as long as
the process; a descriptor is known again by its place in its class; and instances (those of a class with empty
`__slots__`, numbers, `operator.itemgetter`) share what was said of their class, as far as that is all there is to say.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Any

import attrs

from armature.introspection import class_member, is_class, is_descriptor, is_immortal, is_written_in_c

if TYPE_CHECKING:
    from armature.rules.data import Verdict

Reference = Callable[[], object]


@attrs.frozen(eq=False)
class Lasting:
    """Stands for a weak reference to an object that lives as long as the process."""

    obj: object

    def __call__(self) -> object:
        return self.obj


@attrs.frozen(eq=False)
class Placed:
    """Stands for a weak reference to a descriptor: what stands in its place in its class, while the class lives."""

    owner: weakref.ReferenceType[type]
    name: str

    def __call__(self) -> object:
        owner = self.owner()
        return None if owner is None else class_member(owner, self.name)


@attrs.frozen(eq=False)
class OfClass:
    """What was said of the instances of a class, as long as a call of them runs the same.

    call: the `__call__` of the class, None when that cannot change: there is none, or the class is written in C.
    """

    cls: weakref.ReferenceType[type]
    called: bool
    call: Reference | None  # a function may lead back to the class that it stands in
    verdict: Verdict


@attrs.define(eq=False)
class VerdictCache:
    """What was answered before. `get` runs no code of the object, and takes well under 1 us."""

    # Ids of objects that rows are for, which the tables hold: they have no part in what is said of their class.
    named: Set[int] = frozenset()
    kept: dict[int, tuple[Reference, Verdict]] = attrs.field(factory=dict)
    classes: dict[int, OfClass] = attrs.field(factory=dict)

    def get(self, obj: object) -> Verdict | None:
        """The verdict on this very object, None when it was not asked about."""
        held = self.kept.get(id(obj))
        return held[1] if held is not None and held[0]() is obj else None

    def of_class(self, obj: object) -> Verdict | None:
        """The verdict that all instances of its class share, None when there is none or a row is for the object."""
        if id(obj) in self.named:
            return None
        kind = type(obj)
        shared = self.classes.get(id(kind))
        if shared is None or shared.cls() is not kind or callable(obj) is not shared.called:
            return None
        call = shared.call
        return shared.verdict if call is None or call() is class_member(kind, "__call__") else None

    def keep(self, obj: object, verdict: Verdict, *, shared: bool = False) -> None:
        """Keep a verdict as long as its object lives. `shared`: it would be that of any instance of the class."""
        reference = watch(obj, forgetter(self.kept, id(obj)))
        if reference is not None:
            self.kept[id(obj)] = (reference, verdict)
        elif shared and id(obj) not in self.named:
            kind, called = type(obj), callable(obj)
            forget = forgetter(self.classes, id(kind))
            fixed = not called or is_written_in_c(kind)
            call = None if fixed else watch(class_member(kind, "__call__"), forget)
            if fixed or call is not None:
                self.classes[id(kind)] = OfClass(weakref.ref(kind, forget), called, call, verdict)

    def clear(self, named: Set[int]) -> None:
        """Forget everything; these are the ids of objects that rows are for."""
        self.named = named
        self.kept.clear()
        self.classes.clear()


def forgetter(held: dict[int, Any], key: int) -> Callable[[object], None]:
    """What a dying object calls."""
    return lambda _: held.pop(key, None)


def watch(obj: Any, forget: Callable[[object], None]) -> Reference | None:
    """Something that gives the object as long as it lives; None when nothing can. We keep no object alive."""
    if is_immortal(obj):
        return Lasting(obj)
    try:
        return weakref.ref(obj, forget)
    except TypeError:
        pass
    owner: Any = obj.__objclass__ if is_descriptor(obj) else None
    if is_class(owner) and class_member(owner, obj.__name__) is obj:
        return Placed(weakref.ref(owner, forget), obj.__name__)
    return None
