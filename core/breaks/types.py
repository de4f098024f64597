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
    """One line of the user's stack. `text` is stripped.

    column, end_column: characters of the unstripped line between which the expression stands that was run, the first
    one is 0; -1 where Python does not know them. end_line: the line on which it ends, 0 where that is not known.
    """

    file: str
    line: int
    function: str
    text: str = ""
    column: int = -1
    end_line: int = 0
    end_column: int = -1


@attrs.frozen
class SeenValue:
    """A value that a line works on: the user's name for it, and what it was there ("a tensor float32[2, 4] on cpu")."""

    expression: str
    description: str


@attrs.frozen
class BreakEvent:
    """A graph break that happened: its type, the facts, the user's stack (innermost last) and what was done.

    values: what the line works on. seconds: for which the frame was traced again, to be cut there.
    """

    type: BreakType
    facts: Mapping[str, object]
    stack: tuple[FrameSummary, ...]
    outcome: str = "the frame runs eagerly"
    values: tuple[SeenValue, ...] = ()
    seconds: float = 0.0
