"""Checks the break types of plugins for errors and omissions, for `armature plugins doctor`."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Iterator

import attrs

from armature.breaks.types import BreakType, NoExamples

HINTS = 2  # a type should have: the reader can seldom follow the first one


@attrs.frozen
class Finding:
    """A remark about a type. wrong: whether it is an error; otherwise it is only worth knowing."""

    plugin: str
    text: str
    wrong: bool = True

    def __str__(self) -> str:
        return f"{self.text} ({self.plugin})"


def findings(types: Iterable[tuple[BreakType, str]]) -> Iterator[Finding]:
    """The remarks about types, given in pairs with the names of their plugins. Imports the modules of examples."""
    rows = list(types)
    yield from _same_codes(rows)
    bare: Counter[str] = Counter()
    for row, plugin in rows:
        yield from (Finding(plugin, f"{row.id}: {text}") for text in _wrong(row))
        yield from (Finding(plugin, f"{row.id} {text}", wrong=False) for text in _lacking(row))
        bare[plugin] += not (row.example or row.examples)
    yield from (Finding(one, f"{count} without examples", wrong=False) for one, count in bare.items() if count)


def _same_codes(rows: list[tuple[BreakType, str]]) -> Iterator[Finding]:
    held: dict[str, BreakType] = {}
    for row, plugin in rows:
        for code in filter(None, (row.code, *row.also)):
            first = held.setdefault(code, row)
            if first is not row:
                yield Finding(plugin, f"{row.id}: {code} is a code of {first.id} too; a code means one type")


def _wrong(row: BreakType) -> Iterator[str]:
    for text in (row.explanation, *(hint.text for hint in row.hints)):
        try:
            list(string.Formatter().parse(text))
        except ValueError as error:
            yield f"{text!r:.60} is no template: {error}"
    try:
        _ = row.shown_example
    except NoExamples as error:
        yield str(error)


def _lacking(row: BreakType) -> Iterator[str]:
    if not row.cause:
        yield "has no cause: say why it can't be in the graph"
    if len(row.hints) < HINTS:
        yield "has one hint: say what else can be done"
    if not row.code:
        yield "has no code by which people search for it"
