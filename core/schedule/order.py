"""The execution order of groups, kept valid while groups are joined."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from armature.schedule.score import FARTHEST

G = TypeVar("G")


class Order(Generic[G]):
    """Groups in a line such that each comes after its dependencies. A join only moves groups between the two."""

    def __init__(self, groups: Iterable[tuple[G, frozenset[G]]]) -> None:
        self.slots: list[G | None] = []
        self.place: dict[G, int] = {}
        self.needs: dict[G, set[G]] = {}
        self.became: dict[G, G] = {}
        for group, needs in groups:
            self.place[group] = len(self.slots)
            self.slots.append(group)
            self.needs[group] = set(needs)

    def close_up(self) -> None:
        """Remove the gaps left by joined groups, because they count as distance."""
        self.slots = [group for group in self.slots if group is not None]
        self.place = {group: at for at, group in enumerate(self.slots) if group is not None}

    def find(self, group: G) -> G:
        """The group that this one now belongs to."""
        root = group
        while root in self.became:
            root = self.became[root]
        while group is not root:
            self.became[group], group = root, self.became[group]
        return root

    def needed_by(self, group: G) -> set[G]:
        """The current groups that must run before."""
        found = {self.find(g) for g in self.needs[group]}
        found.discard(group)
        self.needs[group] = found
        return found

    def later(self, first: G, second: G) -> list[G] | None:
        """The groups that must move behind `second` when `first` joins it; None if one in between must come before and
        after."""
        low, high = self.place[first], self.place[second]
        if high - low > FARTHEST:
            return None
        moved = {first}
        line: list[G] = []
        for slot in self.slots[low + 1 : high]:
            if slot is not None and not moved.isdisjoint(self.needed_by(slot)):
                moved.add(slot)
                line.append(slot)
        return None if any(g in moved for g in self.needed_by(second) if g is not first) else line

    def can_join(self, one: G, other: G) -> bool:
        """True if the two may become one group without a cycle."""
        return self.later(*self._sorted(one, other)) is not None

    def join(self, one: G, other: G, result: G) -> None:
        """Let `result` (one of the two) replace both. `can_join` must hold."""
        self._gather(one, other, [result])
        self.became[other if result is one else one] = result
        self.needs[result] = (self.needs[one] | self.needs[other]) - {one, other}

    def put_before(self, one: G, other: G) -> None:
        """Let `one` run right before `other`, with all that `other` needs before both. `can_join` must hold."""
        self._gather(one, other, [one, other])
        self.needs[one] = (self.needs[one] | self.needs[other]) - {one, other}
        self.needs[other].add(one)

    def _gather(self, one: G, other: G, result: list[G]) -> None:
        """Put `result` in the place of the two, behind what they need and before what needs them."""
        first, second = self._sorted(one, other)
        line = self.later(first, second)
        if line is None:
            raise ValueError("the groups depend on each other through a third")
        low, high = self.place[first], self.place[second]
        behind = set(line)
        stay = [g for g in self.slots[low + 1 : high] if g is not None and g not in behind]
        new: list[G | None] = [None] * (high - low + 1 - len(result) - len(stay) - len(line))
        new += [*stay, *result, *line]
        self.slots[low : high + 1] = new
        for offset, slot in enumerate(new):
            if slot is not None:
                self.place[slot] = low + offset

    def _sorted(self, one: G, other: G) -> tuple[G, G]:
        return (one, other) if self.place[one] < self.place[other] else (other, one)

    def groups(self) -> list[G]:
        """All groups in the order in which they run."""
        return [g for g in self.slots if g is not None]
