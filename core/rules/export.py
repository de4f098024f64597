"""The whole effective rule book as data and as text: every rule in force, the rules it overrules, and rules without
effect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import attrs

from armature.plugins.registry import name_of
from armature.plugins.tables import Tables
from armature.rules.data import Rule, RuleOrigin

T = TypeVar("T")
Track = Callable[[Iterable[T], int], Iterable[T]]


@attrs.frozen
class Entry:
    """A rule as it is printed. state: "in force", "overruled" or "no effect"; note: why so."""

    target: str
    decision: str
    reason: str
    plugin: str
    file: str
    line: int
    priority: int
    requires: str
    state: str
    note: str = ""


@attrs.frozen
class Computed:
    """A plugin that computes verdicts from objects that no rule names."""

    plugin: str
    file: str
    line: int
    what: str


@attrs.frozen
class Export:
    """The rule book: rules by name, and the deciders in the order in which they are asked."""

    rules: tuple[Entry, ...]
    computed: tuple[Computed, ...]

    def as_data(self) -> dict[str, object]:
        """For `--format json`."""
        return {"rules": [attrs.asdict(e) for e in self.rules], "computed": [attrs.asdict(c) for c in self.computed]}

    def as_markdown(self) -> Iterator[str]:
        """For `--format md`: lines."""
        yield "# The rules in force"
        yield ""
        counts = ", ".join(f"{count} {state}" for state, count in self.counts().items())
        yield f"{len(self.rules)} rules: {counts}. A rule for the very object goes before one for its module."
        for decision, entries in self.by_decision().items():
            yield from (
                "",
                f"## {decision}",
                "",
                "| target | reason | from | priority | state |",
                "|---|---|---|---|---|",
            )
            yield from (row(e) for e in entries)
        yield from (
            "",
            "## computed",
            "",
            "Asked where no rule names the object.",
            "",
            "| plugin | what | where |",
            "|---|---|---|",
        )
        yield from (f"| {cell(c.plugin)} | {cell(c.what)} | `{c.file}:{c.line}` |" for c in self.computed)

    def counts(self) -> Mapping[str, int]:
        """The number of rules in each state."""
        states = [entry.state for entry in self.rules]
        return {state: states.count(state) for state in dict.fromkeys(states)}

    def by_decision(self) -> Mapping[str, list[Entry]]:
        """The rules grouped by decision."""
        found: dict[str, list[Entry]] = {}
        for entry in self.rules:
            found.setdefault(entry.decision, []).append(entry)
        return found


def row(entry: Entry) -> str:
    """A rule as a row of a table."""
    target = f"`{entry.target}`" + (f" ({cell(entry.requires)})" if entry.requires else "")
    where = f"{cell(entry.plugin)} `{entry.file}:{entry.line}`"
    state = f"{entry.state}: {cell(entry.note)}" if entry.note else entry.state
    return f"| {target} | {cell(entry.reason)} | {where} | {entry.priority} | {state} |"


def cell(text: str) -> str:
    """Escape a text for a table cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def plain(rows: Iterable[T], total: int) -> Iterable[T]:
    """The rows, without a progress bar."""
    return rows


def export(tables: Tables, track: Track[tuple[Rule, RuleOrigin]] = plain) -> Export:
    """The rule book of these tables. `track` may show progress; it gets the rows and their number."""
    missing = {(key_of(m.rule), m.origin): m for m in tables.rule_book.missing()}
    rows = {(key_of(rule), origin): (rule, origin) for rule, origin in tables.rule_book.rows()}
    rows = {key: (found.rule, found.origin) for key, found in missing.items()} | rows
    best: dict[object, Rule] = {}
    for key, (rule, _) in rows.items():  # in the order of the plugins
        held = best.get(about(rule))
        if key not in missing and (held is None or rule.priority > held.priority):
            best[about(rule)] = rule
    found = []
    for rule, origin in track(rows.values(), len(rows)):
        absent = missing.get((key_of(rule), origin))
        found.append(entry_of(rule, origin, best.get(about(rule), rule), absent.why if absent else ""))
    found.sort(key=lambda entry: (entry.target, -entry.priority))
    return Export(tuple(found), tuple(computed(tables)))


def about(rule: Rule) -> object:
    """A key that rules about the same thing share."""
    return rule.name.replace("#", ".") or id(rule.target)


def key_of(rule: Rule) -> object:
    """Distinguishes a rule from others in the same place."""
    return (about(rule), rule.decision, rule.priority, rule.requires, rule.reason)


def entry_of(rule: Rule, origin: RuleOrigin, winner: Rule, absent: str) -> Entry:
    """One rule, with its state."""
    if absent:
        state, note = "no effect", absent
    elif winner.decision is not rule.decision:
        state, note = "overruled", f"{winner.decision.value} with priority {winner.priority}"
    else:
        state, note = "in force", ""
    target = rule.name or name_of(rule.target)
    return Entry(
        target=target,
        decision=rule.decision.value,
        reason=rule.reason,
        plugin=origin.plugin,
        file=origin.file,
        line=origin.line,
        priority=rule.priority,
        requires=rule.requires,
        state=state,
        note=note,
    )


def computed(tables: Tables) -> Iterator[Computed]:
    """The deciders."""
    for decider in tables.deciders():
        origin = decider.implementation.origin
        doc = (decider.implementation.function.__doc__ or "verdicts computed from the object").strip()
        yield Computed(origin.plugin, origin.file, origin.line, doc.splitlines()[0])
