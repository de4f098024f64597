"""Calls of torch's operators in compiled graphs, counted by the reason why each is no kernel."""

from __future__ import annotations

from collections import Counter

import attrs

from armature.reports.record import Kernel, Recording


@attrs.frozen
class Group:
    """The calls that have one reason."""

    reason: str
    detail: str
    calls: tuple[Kernel, ...]

    @property
    def operators(self) -> list[tuple[str, int]]:
        """The operators that are called, each with the number of calls, the most frequent first."""
        return Counter(call.name.partition(" ")[0] for call in self.calls).most_common()

    @property
    def lines(self) -> list[str]:
        """The program's lines that they come from, each once."""
        return list(dict.fromkeys(place.where for call in self.calls for place in call.places))


def by_reason(recording: Recording) -> list[Group]:
    """All calls, the most frequent reason first."""
    found: dict[tuple[str, str], list[Kernel]] = {}
    for call in recording.calls:
        found.setdefault((call.reason, call.detail), []).append(call)
    groups = (Group(reason, detail, tuple(calls)) for (reason, detail), calls in found.items())
    return sorted(groups, key=lambda group: -len(group.calls))
