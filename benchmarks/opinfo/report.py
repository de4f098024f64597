"""Tables of a run's results: counts, and failures by cause."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console, Group
from rich.table import Table

Row = dict[str, Any]

KINDS = ("compiled", "no graph", "needs numbers", "not lowered", "broke", "fell back")  # how a sample was compiled
VERDICTS = ("right", "random", "wrong", "raises", "crashed")  # how it ended
OUT_OF_COUNT = ("eager raises", "no gradients", "not run")
BAD = ("wrong", "raises", "crashed")
ORDER = (*BAD, *reversed(KINDS[1:]))  # the order in which causes are listed, the worst first
LISTED = 40
COMPILERS = ("armature", "torch.compile")


@attrs.frozen
class Line:
    """The counts of a dtype and mode."""

    dtype: str
    mode: str
    operators: int
    counts: Counter[str]

    @property
    def samples(self) -> int:
        """The samples that eager mode runs."""
        return sum(self.counts[kind] for kind in KINDS) + self.counts["crashed"]

    @property
    def share(self) -> float:
        """The share of compiled samples among those that can be compiled: they compute something, whatever the tensors'
        values."""
        able = self.samples - self.counts["no graph"] - self.counts["needs numbers"]
        return self.counts["compiled"] / able if able else 1.0


def lines(rows: Iterable[Row]) -> list[Line]:
    """The counts of each dtype and mode, and of all."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    operators: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for mode, found in row.get("modes", {}).items():
            key = (row["library"], mode)
            counts[key].update(found)
            operators[key] += bool(found)
        if "ended" in row:
            kind = "crashed" if ended_badly(row) else "not run"
            counts[row["library"], str(row.get("running", "start")).split(",")[0]][kind] += 1
    every = [Line(*key, operators[key], found) for key, found in counts.items()]
    total: Counter[str] = Counter()
    for line in every:
        total.update(line.counts)
    return [*every, Line("all", "", sum(line.operators for line in every), total)] if every else []


def counts_table(rows: list[Row]) -> Table:
    """A column per dtype and mode."""
    found = lines(rows)
    table = Table(title="OpInfo")
    table.add_column(no_wrap=True)
    for line in found:
        table.add_column(f"{line.dtype}\n{line.mode}", justify="right")

    def add(title: str, value: Callable[[Line], object]) -> None:
        table.add_row(title, *(str(value(line)) for line in found))

    add("operators", lambda line: line.operators)
    add("samples", lambda line: line.samples)
    for section in (KINDS, VERDICTS, OUT_OF_COUNT):
        table.add_section()
        for kind in section:
            add(kind, lambda line, kind=kind: line.counts[kind])
        if section is KINDS:
            add("of what can be", lambda line: f"{line.share:.2%}")
    return table


def causes(rows: Iterable[Row]) -> list[tuple[str, str, list[str]]]:
    """Kind, reason without its numbers, and the operators; the most frequent first."""
    found: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for row in rows:
        for problem in row.get("problems", ()):
            kind = next((k for k in ORDER if k in problem["kinds"]), "")
            where = f"{row['name']} ({row['library']}, {problem['mode']})"
            found[kind, re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?", "N", problem["detail"])[:200]][where] = None
        if ended_badly(row):
            found["crashed", row["ended"]][f"{row['name']} ({row['library']}, {row.get('running', '')})"] = None
    order = [*ORDER, ""]
    grouped = [(kind, reason, list(names)) for (kind, reason), names in found.items()]
    return sorted(grouped, key=lambda item: (order.index(item[0]), -len(item[2])))


def causes_table(rows: list[Row]) -> Table:
    """What is not as it should be."""
    table = Table("kind", "why", "operators", "such as", title="by cause")
    for kind, reason, names in causes(rows)[:LISTED]:
        table.add_row(kind, reason, str(len(names)), ", ".join(names[:3]))
    return table


def calls_table(rows: list[Row]) -> Table:
    """Operators that stay calls in compiled graphs."""
    table = Table("operator", "why", "calls", title="what stays a call in compiled graphs")
    for name, count in calls_in(rows).most_common(LISTED):
        operator, _, why = name.partition("; ")
        table.add_row(operator, why, str(count))
    return table


def calls_in(rows: Iterable[Row]) -> Counter[str]:
    """The calls of all rows together."""
    calls: Counter[str] = Counter()
    for row in rows:
        calls.update(row.get("calls", {}))
    return calls


def reasons_table(rows: list[Row]) -> Table:
    """Why operators stay calls."""
    reasons: Counter[str] = Counter()
    operators: dict[str, set[str]] = defaultdict(set)
    for name, count in calls_in(rows).items():
        operator, _, why = name.partition("; ")
        reasons[why] += count
        operators[why].add(operator)
    table = Table("why", "operators", "calls", title="why these are calls")
    for why, count in reasons.most_common(LISTED):
        table.add_row(why, str(len(operators[why])), str(count))
    return table


def lowered(rows: Iterable[Row]) -> dict[str, Counter[str]]:
    """The samples of each operator that became loops alone: here, by torch.compile, in both; and how many there are.
    Samples of which neither makes a graph are left out."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for mode in row.get("beside", {}).values():
            found[row["name"]].update(mode["lowered"])
    return dict(found)


def operators_lowered(rows: Iterable[Row]) -> Counter[str]:
    """The number of operators all of whose samples became loops alone: here, by torch.compile, in both."""
    counts = Counter(dict.fromkeys(("operators", *COMPILERS, "both"), 0))
    for samples in lowered(rows).values():
        whole = {name for name in COMPILERS if samples[name] == samples["samples"]}
        counts.update(["operators", *whole, *(["both"] if len(whole) == len(COMPILERS) else [])])
    return counts


def beside_line(rows: Iterable[Row]) -> str:
    """The same in words."""
    counts = operators_lowered(rows)
    return (
        f"operators that become loops alone, of {counts['operators']}: {counts['armature']} here, "
        f"{counts['torch.compile']} with torch.compile, {counts['both']} with both"
    )


def only_here_table(rows: Iterable[Row]) -> Table:
    """Operators that are called in samples for which torch.compile calls fewer, and not these."""
    operators: dict[str, set[str]] = defaultdict(set)
    samples: Counter[str] = Counter()
    for row in rows:
        for mode in row.get("beside", {}).values():
            for call, count in mode["only_here"].items():
                samples[call] += count
                operators[call].add(row["name"])
    table = Table("operator", "why", "samples", "such as", title="what is a call here, and none with torch.compile")
    for call, count in samples.most_common(LISTED):
        operator, _, why = call.partition("; ")
        table.add_row(operator, why, str(count), ", ".join(sorted(operators[call])[:3]))
    return table


def terminal(rows: list[Row]) -> Group:
    """All tables."""
    tables = counts_table(rows), causes_table(rows), reasons_table(rows), calls_table(rows)
    beside = (only_here_table(rows), beside_line(rows)) if lowered(rows) else ()
    return Group(*tables, *beside)


def ended_badly(row: Row) -> bool:
    """Whether the process was terminated, except for the end of the whole run's time."""
    return "ended" in row and not str(row["ended"]).startswith(("not started", "stopped"))


def is_bad(row: Row) -> bool:
    """Whether an operator returned a wrong result or crashed its process."""
    return ended_badly(row) or any(found.get(kind) for found in row.get("modes", {}).values() for kind in BAD)


def write(rows: list[Row], out: Path, about: Row) -> None:
    """`opinfo.json` with everything, `opinfo.txt` with the tables."""
    counted = [attrs.asdict(line) | {"samples": line.samples, "share": line.share} for line in lines(rows)]
    beside = {"lowered": operators_lowered(rows), "lowered by operator": lowered(rows)} if lowered(rows) else {}
    (out / "opinfo.json").write_text(json.dumps(about | {"counts": counted} | beside | {"rows": rows}, indent=1))
    with open(out / "opinfo.txt", "w") as file:
        Console(file=file, width=200).print(terminal(rows))
