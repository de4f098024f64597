"""On each name that the incumbent has a verdict on, ours is the same or stands in docs/rule-differences.md with why."""

from __future__ import annotations

import functools
import re
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from armature import plugins
from armature.rules import Decision, RuleBook, Verdict
from armature.rules.book import load_name

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "rule-differences.md"
ROW = re.compile(r"^\| `([^`]+)` \| (\w+) \| (\w+) \| (.+) \|$", re.MULTILINE)
ACTING = re.compile(r"^### ([^\n]+)\n\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = compile("pass", "<module>", "exec")


@functools.cache
def names(kind: str) -> dict[str, str]:
    """Names to the incumbent's verdict on them."""
    tables = tomllib.loads((HERE / "incumbent.toml").read_text())[kind]
    return {
        f"{table['prefix']}.{name}" if "prefix" in table else name: table["verdict"]
        for table in tables
        for name in table["names"].splitlines()
    }


@pytest.fixture(scope="module")
def book() -> RuleBook:
    return plugins.manager().tables().rule_book


@functools.cache
def exists(name: str) -> bool:
    try:
        load_name(name)
    except LookupError:
        return False
    return True


def object_verdicts(book: RuleBook) -> Iterator[tuple[str, str, Verdict]]:
    for name, theirs in names("objects").items():
        if exists(name):
            yield name, theirs, book.verdict(load_name(name))


def module_verdicts(book: RuleBook) -> Iterator[tuple[str, str, Verdict]]:
    """On a frame of the module: whether it is installed makes no difference."""
    for name, theirs in names("modules").items():
        module = name.removesuffix(".__init__")
        yield name, theirs, book.frame_verdict(CODE.replace(co_name=name), {"__name__": module})


def difference(name: str, theirs: str, verdict: Verdict) -> tuple[str, str, str, str]:
    return name, theirs, verdict.decision.value, verdict.reason


def rows_of_page() -> Iterator[tuple[str, str, str, str]]:
    """The rows of the table, and those of functions that act: in the graph there, skipped here."""
    page = PAGE.read_text()
    yield from ROW.findall(page)
    for reason, listed in ACTING.findall(page):
        yield from ((name, "in_graph", "skip", reason) for name in listed.split())


def test_the_names() -> None:
    objects = names("objects")
    assert len(objects) > 2_700
    assert len(names("modules")) > 150
    assert set(objects.values()) == {"special", *(decision.value for decision in Decision)}
    assert sum(map(exists, objects)) > 0.9 * len(objects)


def test_agreement(book: RuleBook) -> None:
    """What the page says is what is so: rows that are missing or no longer true fail."""
    verdicts = [*object_verdicts(book), *module_verdicts(book)]
    found = {difference(*one) for one in verdicts if one[1] != one[2].decision.value}
    told = {row for row in rows_of_page() if exists(row[0])}
    assert found - told == set(), "differences that the page lacks"
    assert told - found == set(), "rows of the page that are not so"


def test_each_difference_has_a_reason() -> None:
    rows = ROW.findall(PAGE.read_text())
    assert len(rows) > 10
    assert len({name for name, *_ in rows}) == len(rows)
    assert all(len(why) > 20 for *_, why in rows)


def test_each_verdict_comes_from_a_rule(book: RuleBook) -> None:
    """None of these names is left to the default, and each rule can be opened."""
    for name, _, verdict in object_verdicts(book):
        assert verdict.reason, name
        assert verdict.origin.plugin == "armature-builtin-rules", (name, verdict)
        assert Path(verdict.origin.file).is_file(), (name, verdict.origin)


def test_names_that_this_torch_lacks_are_passed_over_and_told(book: RuleBook) -> None:
    told = {str(missing.rule.target) for missing in book.missing()}
    lacking = [name for name in names("objects") if not exists(name)]
    assert lacking
    assert [name for name in lacking if name not in told] == []


def test_no_name_that_exists_is_told_as_missing(book: RuleBook) -> None:
    missing = [str(missing.rule.target) for missing in book.missing()]
    there = [name for name in missing if exists(name) and not isinstance(load_name(name), types.ModuleType)]
    assert there == []


def test_each_verdict_names_the_line_of_its_rule(book: RuleBook) -> None:
    lines: dict[str, int] = {}
    for name, _, verdict in [*object_verdicts(book), *module_verdicts(book)]:
        for one in (verdict, *verdict.overruled):
            origin = one.origin
            if origin.file not in lines:
                lines[origin.file] = len(Path(origin.file).read_text().splitlines())
            assert origin.plugin, name
            assert 0 < origin.line <= lines[origin.file], (name, origin)
    assert len(lines) > 8
