"""Keys that represent objects in dicts and sets: keys are equal, with equal hashes, exactly if the objects are."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from armature.trace.base import Tracing, Value


@attrs.frozen(eq=False)
class Identity:
    """The key of an object that equals only itself. Its hash is not the object's, which is an address."""

    value: Value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    @property
    def is_held(self) -> bool:
        """Whether tracing holds the object itself, which came from the program. Of containers it holds the contents."""
        return (of := self.value).source is not None and (of.is_tensor or not (of.is_constant or of.plain_items))


@attrs.frozen(eq=False)
class TracedKey:
    """The key of an object whose class defines `__eq__` and `__hash__`, both of which are traced.

    hashed: the key of what `__hash__` returned. answers: cached results of comparing this key with others in a table.
    Python compares each pair once per operation, however often tracing looks the key up.
    """

    value: Value
    hashed: Hashable
    tracer: Tracing
    answers: list[tuple[TracedKey, bool]] = attrs.field(factory=list, init=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TracedKey):
            theirs = other.value if isinstance(other, Identity) else self.tracer.as_value(other)
            return self.tracer.python.same_or_equal(self.value, theirs)
        known = next((answer for key, answer in other.answers if key is self), None)
        if known is None:
            known = self.tracer.python.same_or_equal(self.value, other.value)
            other.answers.append((self, known))
        return known

    def __hash__(self) -> int:
        return hash(self.hashed)


def end_lookup(key: Hashable) -> None:
    """Forget cached comparisons: the next operation on this key compares again."""
    if isinstance(key, TracedKey):
        key.answers.clear()


@attrs.frozen
class Address:
    """The key of `id(obj)`; of an object that tracing holds, the real address; of a hash, a tuple of what is hashed."""

    of: Hashable


NO_ADDRESS = 1 << 16  # no address is below this number


@attrs.frozen
class Referring:
    """The key of a live weak reference: such references are equal if their objects are."""

    key: Hashable


def is_new(key: Hashable) -> bool:
    """Whether the key belongs to an object made in the frame that equals no object of the program."""
    return isinstance(key.key if isinstance(key, Referring) else key, Identity)


def looked_up(tracer: Tracing, key: Hashable, among: Iterable[Hashable]) -> Hashable:
    """The key in a table. An address that is looked up among numbers is the number that it is now, which is guarded;
    where tracing does not hold the object, or a number is looked up among addresses, the graph breaks."""
    if _has_address(key) and any(map(_has_number, among)):
        return _as_number(tracer, key)
    if _has_number(key) and any(map(_has_address, among)):
        tracer.graph_break("address-among-numbers")
    return key


def _as_number(tracer: Tracing, key: Hashable) -> Hashable:
    if not isinstance(key, Address):
        return type(key)(_as_number(tracer, part) for part in key) if isinstance(key, (tuple, frozenset)) else key
    if isinstance(key.of, Identity) and key.of.is_held:
        key.of.value.rely_on(tracer)
        return id(key.of.value.as_key())
    return key.of if isinstance(key.of, int) else tracer.graph_break("address-among-numbers")


def _has_number(key: Hashable) -> bool:
    """Whether it is or contains a number that may be an address."""
    within = key if isinstance(key, (tuple, frozenset)) else ()
    return any(map(_has_number, within)) or (isinstance(key, int) and key >= NO_ADDRESS)


def _has_address(key: Hashable) -> bool:
    return any(map(_has_address, key)) if isinstance(key, (tuple, frozenset)) else isinstance(key, Address)


def is_by_address(key: Hashable) -> bool:
    """Whether the object's hash, and so its order in a set, depends on an address."""
    if isinstance(key, (tuple, frozenset)):
        return any(map(is_by_address, key))
    within = key.key if isinstance(key, Referring) else key.hashed if isinstance(key, TracedKey) else None
    return isinstance(key, (Identity, Address)) or (within is not None and is_by_address(within))
