"""The catalogue of breaks as people read it: `armature breaks show` and `armature breaks site`."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import torch
import typer
from typer.testing import CliRunner

from armature.breaks import events
from armature.breaks.types import BreakType, Example, ours, with_examples
from armature.cli import breaks
from armature.plugin_api import hookimpl
from armature.plugins import manager
from armature.reports import catalogue

Invoke = Callable[..., Any]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Invoke:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    breaks.register(app)
    app.command("none")(lambda: None)
    return lambda *arguments: CliRunner().invoke(app, ["breaks", *arguments])


def before(x: torch.Tensor) -> torch.Tensor:
    return x + len("<before>")


def after(x: torch.Tensor) -> torch.Tensor:
    return x + 8


class Mine:
    """A plugin with a type of its own."""

    @hookimpl
    def armature_break_types(self) -> list[BreakType]:
        hints = (ours("Wait & see <b>."), "Write it otherwise.")
        example = Example(before, after)
        return [BreakType("mine/odd id", "My break", "`{what}` <i>is</i> mine.", hints, code="XY0001", example=example)]


def all_types() -> list[BreakType]:
    return [row.value for row in manager().tables().registries.break_types.winners()]


def test_every_type_can_be_shown(invoke: Invoke) -> None:
    for one in all_types():
        result = invoke("show", one.id)
        assert result.exit_code == 0, result.output
        assert one.title in result.output and one.hints[0].text.split()[0] in result.output


def test_one_is_found_by_code_and_title_and_shown_with_its_example(invoke: Invoke) -> None:
    with manager().registered(Mine(), "mine"):
        for name in ("mine/odd id", "XY0001", "xy0001", "My break"):
            output = invoke("show", name).output
            assert "XY0001" in output and 'len("<before>")' in output and "return x + 8" in output
            assert "What to do (ours): Wait & see <b>." in output and "Described by mine" in output
        data = json.loads(invoke("show", "XY0001", "--json").output)
    assert data["hints"][1] == {"text": "Write it otherwise.", "kind": "fundamental"} and data["plugin"] == "mine"


def test_one_is_found_by_the_name_that_torch_compile_has_for_it(invoke: Invoke) -> None:
    """Titles are ours where the other one says nothing to a reader; a search finds both."""
    for name in ("missing tp_iter", "LOAD_BUILD_CLASS bytecode not supported", "Observed exception"):
        output = invoke("show", name).output
        assert f"torch.compile calls it: {name}" in output
    assert "data-dependent-branch" in invoke("show", "Data-dependent branching").output


def test_texts_are_shown_as_of_any_program(invoke: Invoke) -> None:
    """Nobody but those who fill them in reads templates: not in the terminal, nor on the site."""
    assert "`<the condition>` is known only" in invoke("show", "data-dependent-branch").output
    assert (
        "`{test}` is known only" in json.loads(invoke("show", "data-dependent-branch", "--json").output)["explanation"]
    )
    for entry in catalogue.entries(manager().tables().registries.break_types.winners()):
        texts = [entry.explanation, entry.cause, *(hint for hint, _ in entry.advice)]
        assert [text for text in texts if re.search(r"\{\w+(![rs])?\}", text)] == []


def test_examples_are_shown_without_what_they_say_to_linters(invoke: Invoke) -> None:
    output = invoke("show", "format-template").output
    assert 'return "{".format(THING), x\n' in re.sub(" +\n", "\n", output) and "noqa" not in output
    assert all("# type: ignore" not in entry.before + entry.after for entry in breaks.catalogue_entries())


def test_forms_that_a_template_asks_for_do_not_matter_where_nothing_is_filled_in() -> None:
    assert events.in_general("The {type}, from a {type} of {type}") == "The <object>, from a <object> of <an object>"
    assert events.in_general("{test} {odd_name!r} {n:05d} {{x}}") == "<the condition> <odd name> <n> {x}"


def test_a_code_that_a_wider_type_covers_leads_to_it(invoke: Invoke) -> None:
    assert "skipped-function" in invoke("show", "GB0008").output


def test_a_type_whose_example_cannot_be_read_is_shown_and_says_so(invoke: Invoke) -> None:
    class Careless:
        @hookimpl
        def armature_break_types(self) -> tuple[BreakType, ...]:
            return with_examples([BreakType("mine", "My break", "It breaks.", ("Wait.", "Go."))], "no.such.module")

    with manager().registered(Careless(), "careless"):
        result, site = invoke("show", "mine"), invoke("site", "out")
    assert result.exit_code == site.exit_code == 0
    assert "It breaks." in result.output and "[A245]" in result.output and "no.such.module" in result.output


def test_one_that_is_not_there_is_told_with_what_is_near(invoke: Invoke) -> None:
    result = invoke("show", "data-dependant-branch")
    assert result.exit_code == 2 and "[A243]" in result.output and "data-dependent-branch" in result.output


def test_without_an_argument_all_are_listed(invoke: Invoke) -> None:
    assert f"{len(all_types())} kinds of graph break" in invoke().output


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attributes if name in ("href", "src") and value]


def test_the_site_has_a_page_for_each_type_and_plugin_and_no_dead_link(invoke: Invoke, tmp_path: Path) -> None:
    with manager().registered(Mine(), "mine"):
        result = invoke("site", "out/site")
        assert result.exit_code == 0, result.output
        entries = catalogue.entries(manager().tables().registries.break_types.winners())
    folder = tmp_path / "out" / "site"
    pages = {file.name: file.read_text(encoding="utf-8") for file in folder.glob("*.html")}
    assert {"index.html", "plugin-mine.html", catalogue.slug("mine/odd id") + ".html"} <= pages.keys()
    assert len(pages) == 1 + len(entries) + len({entry.plugin for entry in entries})
    linked: set[str] = set()
    for text in pages.values():
        found = Links()
        found.feed(text)
        local = {unquote(link) for link in found.links if not re.match(r"\w+:", link)}
        assert local <= pages.keys()
        linked |= local
    assert linked == pages.keys(), "a page that nothing links to"
    for entry in entries:
        assert entry.type.id in pages[entry.page] or "&" in entry.type.id
    own = pages[f"{catalogue.slug('mine/odd id')}.html"]
    assert "&lt;i&gt;is&lt;/i&gt; mine" in own and "<i>" not in own
    assert "<before>" not in pages["index.html"]


def test_ids_that_are_spelled_alike_in_file_names_have_pages_of_their_own() -> None:
    pages = {catalogue.Entry(BreakType(id, "t", "e", ("h",)), "p").page for id in ("a/b", "a-b", "a b", "A-B")}
    assert len({page.lower() for page in pages}) == 4


def test_the_search_finds_by_words(invoke: Invoke, tmp_path: Path) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="tries the search")
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on this machine")
    assert invoke("site", "site").exit_code == 0
    with api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto((tmp_path / "site" / "index.html").as_uri())
        assert page.locator("#list li:visible").count() == len(all_types())
        page.fill("#search", "torch.where branch")
        shown = page.locator("#list li:visible")
        assert 0 < shown.count() < len(all_types())
        assert page.locator("#found").inner_text() == f"{shown.count()} found"
        shown.first.locator("a").click()
        assert page.locator("h1").count() == 1
        browser.close()


def test_a_site_that_cannot_be_written(invoke: Invoke) -> None:
    Path("file").write_text("")
    result = invoke("site", "file/site")
    assert result.exit_code == 2 and "[A241]" in result.output
