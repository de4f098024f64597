"""Reads the rule tables under data/ on first use.

A table is `[[rules]]` with `decision`, `reason`, `names` (one per line, below `prefix` if there is one), and optionally
`priority`, `requires`, `answer`, `whole` and `breaks`, the type of the graph break at a call. The name on each line is
a rule of its own; `armature why` names its file and line.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NotRequired, TypedDict

from armature.plugin_api import SKIPPED, Answer, Decision, RuleTable

DATA = Path(__file__).parent / "data"
_NAMES = "names = '''"


class Table(TypedDict):
    """One of the `[[rules]]` of a file."""

    decision: str
    reason: str
    names: str
    prefix: NotRequired[str]
    priority: NotRequired[int]
    requires: NotRequired[str]
    answer: NotRequired[str]
    breaks: NotRequired[str]
    whole: NotRequired[bool]


@functools.cache
def rules() -> tuple[RuleTable, ...]:
    """All tables, in the order of their file names."""
    return tuple(table for path in sorted(DATA.glob("*.toml")) for table in read(path))


def read(path: Path) -> Iterator[RuleTable]:
    """The tables of one file. ValueError if tables and names are in a different order."""
    text = path.read_text(encoding="utf-8")
    tables: list[Table] = tomllib.loads(text)["rules"]
    starts = [number for number, line in enumerate(text.splitlines(), 1) if line == _NAMES]
    for table, start in zip(tables, starts, strict=True):
        prefix = f"{table['prefix']}." if "prefix" in table else ""
        yield RuleTable(
            names=tuple([prefix + name for name in table["names"].splitlines()]),
            decision=Decision(table["decision"]),
            reason=table["reason"],
            priority=table.get("priority", 0),
            requires=table.get("requires", ""),
            file=str(path),
            line=start + 1,
            answer=Answer(table.get("answer", "unknown")),
            breaks=table.get("breaks", SKIPPED),
            whole=table.get("whole", False),
        )
