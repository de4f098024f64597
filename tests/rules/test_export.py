"""`armature rules export`: every rule, with who gave it, what became of it, as JSON and as Markdown."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

import armature
from armature import plugins
from armature.cli import rules as commands
from armature.cli.app import make_app
from armature.plugin_api import Decision, Rule, Subject, Verdict, hookimpl
from armature.plugins import PluginManager
from armature.rules.export import export


class First:
    @hookimpl
    def armature_rules(self) -> list[Rule]:
        return [
            Rule("json.dumps", Decision.SKIP, "text | not tensors", priority=2),
            Rule("json.no_such", Decision.SKIP, "is not there"),
            Rule("json.loads", Decision.INLINE, "other versions", requires="torch>=99"),
            Rule(make, Decision.IN_GRAPH, "an object"),
        ]

    @hookimpl
    def armature_decide(self, subject: Subject) -> Verdict | None:
        """What cannot be listed."""
        return None


class Second:
    @hookimpl
    def armature_rules(self) -> list[Rule]:
        return [Rule("json.dumps", Decision.INLINE, "plain Python"), Rule("json", Decision.INLINE, "plain Python")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def make() -> int:
    return 1


@pytest.fixture
def manager() -> PluginManager:
    made = PluginManager(find=lambda: ())
    made.register(First(), "first")
    made.register(Second(), "second")
    return made


def test_every_rule_with_its_state(manager: PluginManager) -> None:
    found = {(e.target, e.plugin): e for e in export(manager.tables()).rules}
    states = {key: entry.state for key, entry in found.items()}
    assert states == {
        ("json.dumps", "first"): "in force",
        ("json.dumps", "second"): "overruled",
        ("json.no_such", "first"): "no effect",
        ("json.loads", "first"): "no effect",
        ("json", "second"): "in force",
        (f"{__name__}.make", "first"): "in force",
    }
    assert found["json.dumps", "second"].note == "skip with priority 2"
    assert "does not exist" in found["json.no_such", "first"].note
    assert "torch>=99" in found["json.loads", "first"].note
    assert all(e.file == __file__ and e.line > 0 and e.reason for e in found.values())


def test_those_who_compute_are_named(manager: PluginManager) -> None:
    (one,) = export(manager.tables()).computed
    assert (one.plugin, one.what, one.file) == ("first", "What cannot be listed.", __file__)


def test_what_wins_here_wins_when_asked(manager: PluginManager) -> None:
    book = manager.tables().rule_book
    for entry in export(manager.tables()).rules:
        if entry.state == "in force" and entry.target == "json.dumps":
            assert book.verdict(json.dumps).decision.value == entry.decision


def test_markdown_keeps_its_tables_whole(manager: PluginManager) -> None:
    lines = list(export(manager.tables()).as_markdown())
    assert "| `json.dumps` | text \\| not tensors |" in "\n".join(lines)
    rows = [line for line in lines if line.startswith("| `")]
    assert len(rows) == 6 and all(line.replace("\\|", "").count("|") == 6 for line in rows)
    assert [line for line in lines if line.startswith("## ")] == ["## inline", "## skip", "## in_graph", "## computed"]


def test_the_command_prints_all_rules_of_this_installation() -> None:
    manager = plugins.manager()
    with manager.user.apart(), armature.rules.skip("json.dumps"):
        done = CliRunner().invoke(make_app(manager), ["rules", "export", "--format", "json"])
    assert done.exit_code == 0
    data = json.loads(done.stdout)
    mine = [e for e in data["rules"] if e["plugin"] == "user"]
    assert [(e["target"], e["decision"], e["file"]) for e in mine] == [("json.dumps", "skip", __file__)]
    assert len(data["rules"]) > 2000 and all(e["reason"] and e["file"] and e["line"] for e in data["rules"])
    assert {e["decision"] for e in data["rules"]} == {"in_graph", "inline", "skip"}
    text = CliRunner().invoke(make_app(manager), ["rules", "export"]).stdout
    assert text.startswith("# The rules in force") and len(text.splitlines()) > 2000


def test_a_bar_is_for_who_looks_and_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: Any = list(range(10))
    assert commands.with_bar(rows, commands.SLOW) is rows  # nobody looks: standard error is no terminal here
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert commands.with_bar(rows, 10) is rows
    assert list(commands.with_bar(rows, commands.SLOW)) == rows
    assert capsys.readouterr().out == ""
