"""Finding plugins, their order, taking them away, and when tables are built anew."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

from armature import config, plugins
from armature.errors import DuplicatePlugin, DuplicateRow, UnknownPlugin
from armature.plugin_api import Decision, Rule, hookimpl
from armature.plugins import PluginManager
from armature.plugins.plugin_manager import Candidate, installed


class Rules:
    """A plugin with one rule, whose reason tells plugins apart."""

    def __init__(self, reason: str, priority: int = 0, row_priority: int = 0) -> None:
        self.reason = reason
        self.ARMATURE_PRIORITY = priority
        self.row_priority = row_priority
        self.asked = 0

    @hookimpl
    def armature_rules(self) -> list[Rule]:
        self.asked += 1
        return [Rule("json", Decision.SKIP, self.reason, self.row_priority)]


def reasons(manager: PluginManager) -> list[str]:
    return [rule.reason for rule, _ in manager.tables().rules]


def test_the_installed_plugins_are_found_by_entry_point() -> None:
    found = {candidate.entry.name: candidate for candidate in installed()}
    assert found["builtin_rules"].distribution == "armature-builtin-rules"
    assert found["builtin_rules"].entry.value == "armature_builtin_rules.plugin"
    assert found["builtin_rules"].version == metadata.version("armature-builtin-rules")


def test_a_distribution_on_disk_is_found_and_loaded(tmp_path: Path) -> None:
    (tmp_path / "found_plugin.py").write_text(
        "from armature.plugin_api import Decision, Rule, hookimpl\n"
        "@hookimpl\ndef armature_rules():\n    return [Rule('json', Decision.SKIP, 'found')]\n"
    )
    info = tmp_path / "armature_found-3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: armature-found\nVersion: 3.1\n")
    (info / "entry_points.txt").write_text("[armature]\nfound = found_plugin\n")
    script = (
        "from armature.plugins import manager\n"
        "m = manager(); t = m.tables(); p = next(p for p in t.plugins if p.name == 'found')\n"
        "print(p.distribution, p.version, p.hooks, [r.reason for r, o in t.rules if o.plugin == p.distribution])\n"
    )
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])),
        "PATH": "/usr/bin:/bin",
        "ARMATURE_DISABLE_PLUGINS": "builtin_rules torch_handlers aten_lowerings cpu_cpp gpu_triton",
    }
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "armature-found 3.1 ('armature_rules',) ['found']"


def test_nothing_is_imported_before_it_is_needed() -> None:
    asked = []
    manager = PluginManager(find=lambda: asked.append(1) or ())
    assert not asked
    manager.tables()
    manager.tables()
    assert asked == [1]


def test_importing_the_manager_imports_no_plugin() -> None:
    script = "import sys, armature.plugins; print([m for m in sys.modules if m.startswith('armature_')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_tables_are_built_once_and_again_when_a_plugin_comes_or_goes(manager: PluginManager) -> None:
    plugin = Rules("mine")
    with manager.registered(plugin, "mine"):
        first = manager.tables()
        assert manager.tables() is first
        assert plugin.asked == 1
        manager.register(Rules("other", row_priority=1), "other")
        second = manager.tables()
        assert second.epoch > first.epoch
        assert plugin.asked == 2
        assert len(first.rules) == 1, "a snapshot does not change"
    assert reasons(manager) == ["other"]


def test_a_name_is_taken_once(manager: PluginManager) -> None:
    manager.register(Rules("one"), "mine")
    with pytest.raises(DuplicatePlugin, match="mine"):
        manager.register(Rules("two"), "mine")
    assert reasons(manager) == ["one"]


def test_unregistering_what_is_not_there(manager: PluginManager) -> None:
    manager.register(Rules("one"), "mine")
    with pytest.raises(UnknownPlugin, match="mine"):
        manager.unregister("yours")


def test_a_plugin_may_come_back(manager: PluginManager) -> None:
    plugin = Rules("one")
    for _ in range(3):
        with manager.registered(plugin, "mine"):
            assert reasons(manager) == ["one"]
        assert reasons(manager) == []


def test_order_is_explicit_then_by_priority_then_by_name(manager: PluginManager) -> None:
    manager.register(Rules("c", priority=0), "c")
    manager.register(Rules("b", priority=1), "b")
    manager.register(Rules("a", priority=-1), "a")
    assert reasons(manager) == ["b", "c", "a"]
    with config.patch(plugin_order=("a", "c")):
        assert reasons(manager) == ["a", "c", "b"]
        assert [plugin.name for plugin in manager.plugins] == ["a", "c", "b"]
    assert reasons(manager) == ["b", "c", "a"]


def test_tryfirst_and_trylast_are_obeyed(manager: PluginManager) -> None:
    class First:
        @hookimpl(tryfirst=True)
        def armature_rules(self) -> list[Rule]:
            return [Rule("json", Decision.SKIP, "first")]

    class Last:
        ARMATURE_PRIORITY = 100

        @hookimpl(trylast=True)
        def armature_rules(self) -> list[Rule]:
            return [Rule("json", Decision.SKIP, "last")]

    manager.register(Rules("middle"), "a")
    manager.register(Last(), "b")
    manager.register(First(), "c")
    assert reasons(manager) == ["first", "middle", "last"]


def test_a_registered_plugin_can_be_disabled(manager: PluginManager) -> None:
    manager.register(Rules("one"), "mine")
    with config.patch(disabled_plugins={"mine"}):
        assert reasons(manager) == []
        assert manager.plugins == ()
    assert reasons(manager) == ["one"]


@pytest.mark.usefixtures("lenient")
def test_two_distributions_with_one_plugin_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "twin_a.py").write_text("")
    (tmp_path / "twin_b.py").write_text("")
    twins = [
        Candidate(metadata.EntryPoint("twin", f"twin_{letter}", "armature"), f"armature-{letter}", "1.0")
        for letter in "ab"
    ]
    manager = PluginManager(find=lambda: twins)
    assert [plugin.distribution for plugin in manager.plugins] == ["armature-a"]
    (problem,) = manager.problems
    assert problem.distribution == "armature-b"
    assert "armature-a" in str(problem.error)
    assert len(manager.problems) == 1


@pytest.mark.usefixtures("lenient")
def test_a_tie_is_a_problem_and_explicit_order_mends_it(manager: PluginManager) -> None:
    class Skips:
        @hookimpl
        def armature_rules(self) -> list[Rule]:
            return [Rule("json", Decision.SKIP, "text")]

    class Inlines:
        @hookimpl
        def armature_rules(self) -> list[Rule]:
            return [Rule("json", Decision.INLINE, "why not")]

    manager.register(Skips(), "skips")
    manager.register(Inlines(), "inlines")
    (problem,) = manager.problems
    assert isinstance(problem.error, DuplicateRow)
    assert "skips" in str(problem.error) and "inlines" in str(problem.error)
    with config.patch(strict=True), pytest.raises(DuplicateRow, match="json"):
        manager.tables()
    with config.patch(plugin_order=("skips",)):
        assert manager.problems == ()
        (contest,) = manager.tables().contests()
        assert contest.winner.value.reason == "text"


def test_the_process_has_one_manager() -> None:
    assert plugins.manager() is plugins.manager()


def test_provenance_names_the_file_and_line(manager: PluginManager) -> None:
    manager.register(Rules("one"), "mine")
    ((_, origin),) = manager.tables().rules
    assert origin.plugin == "mine"
    assert origin.file == __file__
    assert Path(__file__).read_text().splitlines()[origin.line - 1].strip() in (
        "@hookimpl",
        "def armature_rules(self) -> list[Rule]:",
    )


def test_tables_of_the_installed_plugins_are_built_quickly() -> None:
    manager = PluginManager()
    with config.patch(strict=False):
        manager.tables()  # the first time imports the plugins
        manager.register(object(), "nothing")
        start = time.perf_counter()
        tables = manager.tables()
        seconds = time.perf_counter() - start
    assert len(list(tables.rule_book.rows())) > 1_000
    assert seconds < 2, "the budget is 0.1 s; this only catches a change of order of magnitude on a busy machine"
