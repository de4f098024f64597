"""Verdicts kept per object, by identity: each goes when its object goes, so that a reused id is not mistaken for it.

Most objects are watched by a weak reference. Of those that cannot have one, methods of classes in C live as long as
the process; a descriptor is known again by its place in its class; and instances (those of a class with empty
`__slots__`, numbers, `operator.itemgetter`) share what was said of their class, as far as that is all there is to say.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from armature.callables import MISSING, class_member, is_class, is_descriptor, lives_on

if TYPE_CHECKING:
    from armature.rules import Verdict

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
    """What was said of the instances of a class, as long as the class has the same `__call__`."""

    cls: weakref.ReferenceType[type]
    call: Reference  # a function may lead back to the class that it stands in
    verdict: Verdict


@attrs.define(eq=False)
class VerdictCache:
    """What was answered before. `get` runs no code of the object, and takes well under 1 us."""

    kept: dict[int, tuple[Reference, Verdict]] = attrs.field(factory=dict)
    classes: dict[int, OfClass] = attrs.field(factory=dict)

    def get(self, obj: object) -> Verdict | None:
        """The verdict on this very object, None when it was not asked about."""
        held = self.kept.get(id(obj))
        return held[1] if held is not None and held[0]() is obj else None

    def of_class(self, obj: object) -> Verdict | None:
        """The verdict that all instances of its class share, None when there is none."""
        kind = type(obj)
        shared = self.classes.get(id(kind))
        if shared is None or shared.cls() is not kind or class_member(kind, "__call__") is not shared.call():
            return None
        return shared.verdict

    def keep(self, obj: object, verdict: Verdict, *, shared: bool = False) -> None:
        """Keep a verdict as long as its object lives. `shared`: it would be that of any instance of the class."""
        reference = watch(obj, forgetter(self.kept, id(obj)))
        if reference is not None:
            self.kept[id(obj)] = (reference, verdict)
        elif shared:
            kind = type(obj)
            forget = forgetter(self.classes, id(kind))
            call = class_member(kind, "__call__")
            held = Lasting(MISSING) if call is MISSING else watch(call, forget)
            if held is not None:
                self.classes[id(kind)] = OfClass(weakref.ref(kind, forget), held, verdict)

    def clear(self) -> None:
        """Forget everything."""
        self.kept.clear()
        self.classes.clear()


def forgetter(held: dict[int, Any], key: int) -> Callable[[object], None]:
    """What a dying object calls."""
    return lambda _: held.pop(key, None)


def watch(obj: Any, forget: Callable[[object], None]) -> Reference | None:
    """Something that gives the object as long as it lives; None when nothing can. We keep no object alive."""
    try:
        return weakref.ref(obj, forget)
    except TypeError:
        pass
    if lives_on(obj):
        return Lasting(obj)
    owner: Any = obj.__objclass__ if is_descriptor(obj) else None
    if is_class(owner) and class_member(owner, obj.__name__) is obj:
        return Placed(weakref.ref(owner, forget), obj.__name__)
    return None
