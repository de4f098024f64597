"""The catalogue of graph breaks for users: a single type in the terminal, or all types as a web site."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.console import RenderableType
from rich.syntax import Syntax
from rich.text import Text

from armature.breaks import events
from armature.breaks.report import Indented
from armature.breaks.types import BreakType, Example, NoExamples, plainly
from armature.errors import ArmatureError
from armature.plugins.registry import Row
from armature.reports.files import CannotWriteReport, write_text
from armature.reports.html import TEMPLATES, markup

NEAREST = 3
TO_LINTERS = re.compile(r" *# *(?:type: ignore|noqa|mypy:|ruff:|fmt:)[^\n#]*", re.MULTILINE)


class NoSuchBreakType(ArmatureError):
    """There is no break type by that name."""

    code = "A243"
    text = "there is no kind of graph break called {name!r}"
    hint = "{advice}"


@attrs.frozen(eq=False)
class Entry:
    """A break type and the plugin that defines it."""

    type: BreakType
    plugin: str
    place: str = ""

    @property
    def page(self) -> str:
        """The file of its page."""
        return f"{slug(self.type.id)}.html"

    @property
    def example(self) -> Example | None:
        """The example of the type; None if it has none, or if it can't be read (`trouble` says why)."""
        with contextlib.suppress(NoExamples):
            return self.type.shown_example
        return None

    @property
    def trouble(self) -> str:
        """Why its example can't be read, "" where it can."""
        try:
            _ = self.type.shown_example
        except NoExamples as error:
            return str(error)
        return ""

    @property
    def before(self) -> str:
        """The source of the example that breaks the graph; "" without an example."""
        return "" if self.example is None else sources_of(self.example.before, self.example.called)

    @property
    def after(self) -> str:
        """The source of the example rewritten without a graph break; "" if there is none."""
        if self.example is None or self.example.after is None:
            return ""
        return sources_of(self.example.after, self.example.called_after)

    @property
    def explanation(self) -> str:
        """What it means, without the facts of a program."""
        return events.in_general(self.type.explanation)

    @property
    def cause(self) -> str:
        """Why the operation can't be in a graph."""
        return events.in_general(self.type.cause)

    @property
    def advice(self) -> tuple[tuple[str, str], ...]:
        """What the user can do, and what kind of advice that is."""
        return tuple((events.in_general(hint.text), hint.kind.value) for hint in self.type.hints)

    def as_data(self) -> dict[str, Any]:
        """The data for `--json`. Texts are templates, whose placeholders the reader fills in."""
        return {
            "id": self.type.id,
            "code": self.type.code,
            "title": self.type.title,
            "explanation": self.type.explanation,
            "cause": self.type.cause,
            "hints": [{"text": hint.text, "kind": hint.kind.value} for hint in self.type.hints],
            "also": list(self.type.also),
            "torch_name": self.type.torch_name,
            "before": self.before,
            "after": self.after,
            "docs_url": self.type.docs_url,
            "plugin": self.plugin,
        }


def slug(name: str) -> str:
    """Turn a name into a file name. If characters had to be replaced, a digest is appended to keep the result
    unique."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower())
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def source_of(fn: Callable[..., Any]) -> str:
    """The source of a function without its comments for linters; "" if it can't be read."""
    try:
        return TO_LINTERS.sub("", textwrap.dedent(inspect.getsource(fn))).rstrip()
    except (OSError, TypeError):
        return ""


def sources_of(fn: Callable[..., Any], called: Callable[..., Any]) -> str:
    """The source of an example, followed by that of its caller if readers need to see the call."""
    return source_of(fn) if called is plainly else f"{source_of(fn)}\n\n\n{source_of(called)}"


def entries(rows: Iterable[Row[BreakType]]) -> list[Entry]:
    """The types in the order of their names."""
    found = [Entry(row.value, row.plugin.title, f"{row.origin.file}:{row.origin.line}") for row in rows]
    return sorted(found, key=lambda entry: entry.type.id)


def find(name: str, known: Sequence[Entry]) -> Entry:
    """Find the type by its id, code, title or name in torch.compile, or by a code that it covers.

    Errors: NoSuchBreakType, which names similar ones.
    """
    wanted = name.strip().lower()
    for entry in known:
        if wanted in (entry.type.id.lower(), entry.type.code.lower(), entry.type.title.lower()):
            return entry
    for entry in known:
        if wanted in (entry.type.torch_name.strip().lower(), *map(str.lower, entry.type.also)):
            return entry
    names = [entry.type.id for entry in known]
    called = {entry.type.id: f"{entry.type.id} {entry.type.title} {entry.type.torch_name}".lower() for entry in known}
    inside = [id for id, words in called.items() if wanted in words]
    near = (inside or difflib.get_close_matches(name, names, NEAREST, cutoff=0.4))[:NEAREST]
    advice = f"Did you mean {', '.join(near)}?" if near else "`armature breaks` lists all."
    raise NoSuchBreakType(name=name, advice=advice)


def lines(entry: Entry) -> Iterator[RenderableType]:
    """A type for the terminal."""
    shown = entry.type
    yield Text.assemble((shown.title, "bold"), "  ", (shown.name, "cyan"))
    yield Text(entry.explanation)
    if entry.cause:
        yield Text(entry.cause)
    yield from (Text(f"What to do ({kind}): {hint}") for hint, kind in entry.advice)
    for caption, source in (("It breaks:", entry.before), ("It does not:", entry.after)):
        if source:
            yield Text(caption, style="dim")
            yield Indented(Syntax(source, "python", background_color="default"))
    if entry.trouble:
        yield Text(entry.trouble, style="red")
    if shown.torch_name:
        yield Text(f"torch.compile calls it: {shown.torch_name.strip()}", style="dim")
    if shown.also:
        yield Text(f"Covers also: {', '.join(shown.also)}", style="dim")
    yield Text(f"Described by {entry.plugin}, {entry.place}", style="dim")
    if shown.docs_url:
        yield Text(shown.docs_url)


def write_site(folder: Path, known: Sequence[Entry]) -> list[Path]:
    """A page for each type and each plugin, and one that lists all with a search. Errors: CannotWriteReport."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    environment.filters["markup"] = markup
    by_plugin: dict[str, list[Entry]] = {}
    for entry in known:
        by_plugin.setdefault(entry.plugin, []).append(entry)
    plugins = {name: f"plugin-{slug(name)}.html" for name in sorted(by_plugin)}
    shared = {"plugins": plugins, "style": (TEMPLATES / "report.css").read_text(encoding="utf-8")}
    listing, single = environment.get_template("breaks.html.j2"), environment.get_template("break.html.j2")
    pages = {"index.html": listing.render(shared, entries=known, plugin="", words=search_words(known))}
    for name, file in plugins.items():
        own = by_plugin[name]
        pages[file] = listing.render(shared, entries=own, plugin=name, words=search_words(own))
    pages |= {entry.page: single.render(shared, entry=entry) for entry in known}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in pages.items():
            write_text(folder / file, text)
    except OSError as error:
        raise CannotWriteReport(path=folder, problem=error.strerror or error) from error
    return [folder / file for file in pages]


def search_words(known: Sequence[Entry]) -> str:
    """The words that the search looks through, per page, as JSON that is safe inside a script element."""
    words = {
        entry.page: " ".join(
            [entry.type.id, entry.type.code, entry.type.title, entry.explanation, entry.cause]
            + [hint for hint, _ in entry.advice]
            + [entry.type.torch_name, *entry.type.also, entry.before]
        ).lower()
        for entry in known
    }
    return json.dumps(words).replace("<", "\\u003c")
