"""What stands for objects as keys of dicts and members of sets: equal keys are equal objects, of equal hash."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from armature.trace.values.base import Tracing, Value


@attrs.frozen(eq=False)
class Identity:
    """The key of an object that equals only itself. Its hash is not the object's: that is an address."""

    value: Value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


@attrs.frozen(eq=False)
class TracedKey:
    """The key of an object whose class defines `__eq__` and `__hash__`: both are traced.

    answers: what keys in a table have said to this one when it was looked up there. An operation of the program asks
    each once, however often tracing has to look.
    """

    value: Value
    hashed: int
    tracer: Tracing
    answers: list[tuple[TracedKey, bool]] = attrs.field(factory=list, init=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TracedKey):
            theirs = other.value if isinstance(other, Identity) else self.tracer.as_value(other)
            return self.tracer.python.same_or_equal(self.value, theirs)
        asked = next((answer for key, answer in other.answers if key is self), None)
        if asked is None:
            asked = self.tracer.python.same_or_equal(self.value, other.value)
            other.answers.append((self, asked))
        return asked

    def __hash__(self) -> int:
        return self.hashed


def settle(key: Hashable) -> None:
    """An operation with a key is over: the next one asks again."""
    if isinstance(key, TracedKey):
        key.answers.clear()


@attrs.frozen
class Address:
    """The key of the address of an object; of one that tracing holds, the address."""

    of: Identity | int


NO_ADDRESS = 1 << 16  # an int below it is none


@attrs.frozen
class Referring:
    """The key of a weak reference that lives: such references are as equal as what they refer to."""

    key: Hashable


def is_new(key: Hashable) -> bool:
    """Whether the key, of an object that the frame has made, equals no object of the program."""
    return isinstance(key.key if isinstance(key, Referring) else key, Identity)


def looked_up(tracer: Tracing, key: Hashable, among: Iterable[Hashable]) -> None:
    """Break where an address is looked for among numbers, or the other way round: a number may be the address."""
    for holds, wanted in ((_has_address, _has_number), (_has_number, _has_address)):
        if holds(key) and any(map(wanted, among)):
            tracer.graph_break("address-among-numbers")


def _has_number(key: Hashable) -> bool:
    """Whether it is a number, or holds one, that may be an address."""
    if isinstance(key, (tuple, frozenset)):
        return any(map(_has_number, key))
    return isinstance(key, int) and key >= NO_ADDRESS


def _has_address(key: Hashable) -> bool:
    if isinstance(key, (tuple, frozenset)):
        return any(map(_has_address, key))
    return isinstance(key, Address)


def is_by_address(key: Hashable) -> bool:
    """Whether the object's hash, and so its place among others, is an address."""
    if isinstance(key, (tuple, frozenset)):
        return any(is_by_address(item) for item in key)
    return isinstance(key, (Identity, Address)) or (isinstance(key, Referring) and is_by_address(key.key))
