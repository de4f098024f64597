"""The tables, the JSON file and the page of a sweep."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import jinja2
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from benchmarks.zoo.causes import FATAL, KINDS, failures, grouped, model_of, summary
from benchmarks.zoo.measure import PHASES

Row = dict[str, Any]
TEMPLATE = "zoo.html.j2"
SHOWN = 25  # causes shown in the terminal; the page has all


def libraries_table(rows: list[Row]) -> Table:
    """A line for each library."""
    table = Table(title="Models by library")
    for column in ("library", "models", "ran", "right", "not built", "not measured"):
        table.add_column(column, justify="left" if column == "library" else "right")
    for name in sorted({row["library"] for row in rows}):
        found = summary(row for row in rows if row["library"] == name)
        table.add_row(name, *(str(n) for n in (found.rows, found.ran, found.right, found.unbuilt, found.unmeasured)))
    found = summary(rows)
    cells = (found.rows, found.ran, found.right, found.unbuilt, found.unmeasured)
    table.add_row("all", *(str(n) for n in cells), style="bold")
    return table


def counts_of(row: Row, phase: str) -> str:
    """Graphs and breaks of both, "1+0 / 1+0"."""
    found = row.get(phase, {})
    texts = []
    for way in ("capture", "torch.compile"):
        one = found.get(way)
        texts.append("-" if not one or "raised" in one else f"{len(one.get('graphs', ()))}+{one.get('break count', 0)}")
    return " / ".join(texts)


def seconds_of(row: Row, phase: str) -> str:
    """Seconds of the first call: armature's front end, torch.compile's, and armature with kernels."""
    found = row.get(phase, {})
    times = [found.get(way, {}).get("seconds") for way in ("capture", "torch.compile", "auto")]
    return " ".join("-" if t is None else f"{t:.1f}" for t in times)


def state_of(row: Row) -> str:
    """A row's state in a word or two."""
    kinds = Counter(f.kind for f in failures(row))
    if kinds:
        return ", ".join(kind for kind in KINDS if kind in kinds)
    return str(row.get("not built") or row.get("ended") or "ok")


def models_table(rows: list[Row]) -> Table:
    """A line for each model."""
    table = Table(title="Graphs+breaks: armature / torch.compile; seconds: capture, torch.compile, auto")
    for column in ("model", "infer", "train", "s infer", "s train", ""):
        table.add_column(column, overflow="fold")
    for row in sorted(rows, key=model_of):
        state = state_of(row)
        cells = [f(row, phase) for f in (counts_of, seconds_of) for phase in PHASES]
        bad = any(word in state for word in FATAL)
        table.add_row(model_of(row), *cells, state[:60], style="red" if bad else "" if state == "ok" else "yellow")
    return table


def causes_table(rows: list[Row]) -> Table:
    """The causes of failures with the number of models."""
    table = Table(title="Failures by cause")
    for column in ("kind", "models", "cause", "for example"):
        table.add_column(column, overflow="fold")
    for kind, cause, members in grouped(f for row in rows for f in failures(row))[:SHOWN]:
        models = sorted({f.model for f in members})
        table.add_row(kind, str(len(models)), escape(cause), models[0])  # ids of breaks are in brackets
    return table


def terminal(rows: list[Row], every_model: bool) -> Group:
    """All output for the terminal."""
    found = summary(rows)
    reached = Table(title="What was found", show_header=False)
    share = found.one_graph_both / found.one_graph_theirs if found.one_graph_theirs else 1.0
    reached.add_row("models that eager mode runs", str(found.ran))
    reached.add_row("right in all ways", str(found.right))
    reached.add_row("phases that torch.compile runs", str(found.phases))
    reached.add_row("one graph there", str(found.one_graph_theirs))
    reached.add_row("of these, one graph here", f"{found.one_graph_both} ({share:.1%})")
    reached.add_row("phases with more breaks than torch.compile", str(found.more_breaks))
    reached.add_row("models with a fallback", str(found.fallbacks))
    tables = [models_table(rows)] if every_model else []
    return Group(*tables, causes_table(rows), libraries_table(rows), reached)


def page(rows: list[Row], title: str) -> str:
    """The self-contained page of failures by cause."""
    folder = Path(__file__).parent
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(folder), autoescape=True, trim_blocks=True)
    causes = [
        {"kind": kind, "cause": cause, "models": sorted({f.model for f in members}), "members": members}
        for kind, cause, members in grouped(f for row in rows for f in failures(row))
    ]
    unbuilt = [(model_of(row), row["not built"]) for row in rows if "not built" in row]
    ended = [(model_of(row), f"{row['ended']}, {row.get('stage', '')}") for row in rows if "ended" in row]
    lines = [
        (model_of(row), *(f(row, phase) for f in (counts_of, seconds_of) for phase in PHASES), state_of(row))
        for row in sorted(rows, key=model_of)
    ]
    found = attrs.asdict(summary(rows))
    return environment.get_template(TEMPLATE).render(
        title=title, summary=found, causes=causes, unbuilt=unbuilt, ended=ended, lines=lines, fatal=FATAL
    )


def write(rows: list[Row], out: Path, about: Row) -> None:
    """`zoo.json` and `zoo.html` in a folder."""
    content = {**about, "summary": attrs.asdict(summary(rows)), "rows": sorted(rows, key=model_of)}
    (out / "zoo.json").write_text(json.dumps(content, indent=1) + "\n")
    (out / "zoo.html").write_text(page(rows, f"The zoo: {about['machine']}"))
