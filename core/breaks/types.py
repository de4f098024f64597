"""Break types: a graph break's stable id, its texts, and the event that says where it happened."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from attrs.validators import min_len


@attrs.frozen
class BreakType:
    """A row of the break catalogue. `explanation` is a template over the facts given where the break is raised."""

    id: str = attrs.field(validator=min_len(1))  # "data-dependent-branch"
    title: str = attrs.field(validator=min_len(1))
    explanation: str = attrs.field(validator=min_len(1))
    hints: tuple[str, ...] = attrs.field(validator=min_len(1))
    docs_url: str = ""


@attrs.frozen
class FrameSummary:
    """One line of the user's stack."""

    file: str
    line: int
    function: str
    text: str = ""


@attrs.frozen
class BreakEvent:
    """A graph break that happened: its type, the facts, the user's stack (innermost last) and what was done."""

    type: BreakType
    facts: Mapping[str, object]
    stack: tuple[FrameSummary, ...]
    outcome: str = "the frame runs eagerly"
