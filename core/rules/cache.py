"""Verdicts cached per object, by identity: each entry dies with its object, so that a reused id is not mistaken for it.

Most objects are watched by a weak reference. Of those that can't have one, methods of C classes live as long as the
process; a descriptor is identified by its place in its class; and instances (of a class with empty `__slots__`,
numbers, `operator.itemgetter`) share their class's verdict, if nothing more specific applies.
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
class PermanentReference:
    """Replaces a weak reference to an object that lives as long as the process."""

    obj: object

    def __call__(self) -> object:
        return self.obj


@attrs.frozen(eq=False)
class DescriptorReference:
    """Replaces a weak reference to a descriptor: returns the object in its place in its class, while the class
    lives."""

    owner: weakref.ReferenceType[type]
    name: str

    def __call__(self) -> object:
        owner = self.owner()
        return None if owner is None else class_member(owner, self.name)


@attrs.frozen(eq=False)
class ClassVerdict:
    """The shared verdict of a class's instances, valid while a call of them runs the same code.

    call: the `__call__` of the class, None if that can't change: there is none, or the class is written in C.
    """

    cls: weakref.ReferenceType[type]
    called: bool
    call: Reference | None  # a weak reference, because a function may refer to its class
    verdict: Verdict


@attrs.define(eq=False)
class VerdictCache:
    """Cached answers. `get` runs no code of the object, and takes well under 1 us."""

    # Ids of objects with rows of their own, which the tables hold; they do not use their class's verdict.
    named: Set[int] = frozenset()
    verdicts: dict[int, tuple[Reference, Verdict]] = attrs.field(factory=dict)
    classes: dict[int, ClassVerdict] = attrs.field(factory=dict)

    def get(self, obj: object) -> Verdict | None:
        """The cached verdict on this very object; None if there is none."""
        held = self.verdicts.get(id(obj))
        return held[1] if held is not None and held[0]() is obj else None

    def of_class(self, obj: object) -> Verdict | None:
        """The verdict shared by all instances of its class; None if there is none or the object has a row."""
        if id(obj) in self.named:
            return None
        kind = type(obj)
        shared = self.classes.get(id(kind))
        if shared is None or shared.cls() is not kind or callable(obj) is not shared.called:
            return None
        call = shared.call
        return shared.verdict if call is None or call() is class_member(kind, "__call__") else None

    def store(self, obj: object, verdict: Verdict, *, shared: bool = False) -> None:
        """Cache a verdict as long as its object lives. `shared`: it applies to any instance of the class."""
        reference = watch(obj, forgetter(self.verdicts, id(obj)))
        if reference is not None:
            self.verdicts[id(obj)] = (reference, verdict)
        elif shared and id(obj) not in self.named:
            kind, called = type(obj), callable(obj)
            forget = forgetter(self.classes, id(kind))
            fixed = not called or is_written_in_c(kind)
            call = None if fixed else watch(class_member(kind, "__call__"), forget)
            if fixed or call is not None:
                self.classes[id(kind)] = ClassVerdict(weakref.ref(kind, forget), called, call, verdict)

    def clear(self, named: Set[int]) -> None:
        """Forget everything; `named` are the ids of objects with rows."""
        self.named = named
        self.verdicts.clear()
        self.classes.clear()


def forgetter(held: dict[int, Any], key: int) -> Callable[[object], None]:
    """The callback of a dying object."""
    return lambda _: held.pop(key, None)


def watch(obj: Any, forget: Callable[[object], None]) -> Reference | None:
    """A reference that returns the object as long as it lives, without keeping it alive; None if none is possible."""
    if is_immortal(obj):
        return PermanentReference(obj)
    try:
        return weakref.ref(obj, forget)
    except TypeError:
        pass
    owner: Any = obj.__objclass__ if is_descriptor(obj) else None
    if is_class(owner) and class_member(owner, obj.__name__) is obj:
        return DescriptorReference(weakref.ref(owner, forget), obj.__name__)
    return None
