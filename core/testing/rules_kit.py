"""Tests for rule authors, derived from a list of targets and expected verdicts.

    class TestRules(RulesConformance):
        plugin = armature_mylib.plugin
        verdicts = {"mylib.fast.normalize": Decision.INLINE, mylib.load: Decision.SKIP}

For each target: it exists; it has the expected verdict, with a reason and an origin that can be opened; a second query
returns the same object; a rule of higher priority by another plugin wins, and the overruled one stays visible; one of
lower priority for the whole package changes nothing. For the plugin: every named target exists (except `absent`), and
no two of its rules contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import attrs
import pytest

from armature.hookspecs import hookimpl
from armature.introspection import Subject, describe, layers
from armature.plugins.plugin_manager import PluginManager
from armature.rules.book import RuleBook, load_name
from armature.rules.data import Decision, Rule, RuleOrigin, RuleTable, Verdict


@attrs.frozen
class RowsOnly:
    """Tables that only hold rules, for tests of precedence: pairs of a plugin's name and its rule."""

    pairs: tuple[tuple[str, Rule], ...]
    answers: tuple[Callable[[Subject], Verdict | None], ...] = ()
    ids_with_rows: frozenset[int] = frozenset()  # no handlers and no polyfills

    @property
    def rules(self) -> tuple[tuple[Rule, RuleOrigin], ...]:
        """The rows in the form of the real tables."""
        return tuple((rule, rule.origin or RuleOrigin(plugin)) for plugin, rule in self.pairs)

    def stand_in(self, fn: object) -> tuple[int, RuleOrigin] | None:
        """No polyfills."""
        return None

    def handled_by(self, fn: object) -> RuleOrigin | None:
        """No handlers."""
        return None

    def deciders(self) -> tuple[Callable[[Subject], Verdict | None], ...]:
        """The functions that compute verdicts."""
        return self.answers


def book_of(*rules: Rule, answers: Iterable[Callable[[Subject], Verdict | None]] = ()) -> RuleBook:
    """A rule book with only these rules, from a plugin called "test"."""
    tables: Any = RowsOnly(tuple(("test", rule) for rule in rules), tuple(answers))
    return RuleBook(tables)


def book_with(**plugins: object) -> RuleBook:
    """A rule book with only these plugins, collected as the real manager does."""
    manager = PluginManager(find=lambda: ())
    for name, plugin in plugins.items():
        manager.register(plugin, name)
    return RuleBook(manager.tables())


def as_object(target: object) -> Any:
    """The object itself, or that of a dotted name, imported. Errors: LookupError."""
    return load_name(target) if isinstance(target, str) else target


class RulesConformance:
    """Subclass it, set `plugin` and `verdicts`; `absent` lists names that this installation may lack."""

    plugin: ClassVar[object]
    verdicts: ClassVar[Mapping[Any, Decision]]
    absent: ClassVar[frozenset[str]] = frozenset()
    _book: ClassVar[RuleBook]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each target."""
        if "target" in metafunc.fixturenames:
            targets = list(type(self).verdicts)
            metafunc.parametrize("target", targets, ids=[str(getattr(t, "__qualname__", t)) for t in targets])

    @pytest.fixture
    def book(self) -> RuleBook:
        """The rule book of the plugin alone."""
        tests = type(self)
        if "_book" not in vars(tests):
            tests._book = book_with(tested=tests.plugin)
        return tests._book

    def test_target_exists(self, target: object) -> None:
        assert as_object(target) is not None

    def test_verdict(self, book: RuleBook, target: object) -> None:
        verdict = book.verdict(as_object(target))
        assert verdict.decision is type(self).verdicts[target], f"{verdict.reason} ({verdict.origin})"

    def test_reason_and_origin(self, book: RuleBook, target: object) -> None:
        verdict = book.verdict(as_object(target))
        assert len(verdict.reason) > 5
        assert verdict.origin.plugin == "tested", f"no rule of the plugin speaks of {target}"
        assert Path(verdict.origin.file).is_file()
        assert verdict.origin.line > 0

    def test_the_answer_is_kept(self, book: RuleBook, target: object) -> None:
        obj = as_object(target)
        ours = book.verdict(obj)
        assert book.verdict(obj) is ours
        again = book_with(tested=type(self).plugin).verdict(obj)
        assert (again.decision, again.reason) == (ours.decision, ours.reason), "asked again, it answers differently"

    def test_a_higher_priority_wins_and_keeps_the_loser(self, book: RuleBook, target: object) -> None:
        obj = as_object(target)
        ours = book.verdict(obj)
        other = next(d for d in Decision if d is not ours.decision)
        rule = Rule(obj, other, "a stronger opinion", priority=10**6)
        stronger = SimpleNamespace(armature_rules=hookimpl(rows(rule)))
        verdict = book_with(tested=type(self).plugin, stronger=stronger).verdict(obj)
        assert verdict.decision is other
        assert verdict.origin.plugin == "stronger"
        by_a_rule = any(origin == ours.origin for _, origin in book.rows())
        assert not by_a_rule or ours.origin in [lost.origin for lost in verdict.overruled]

    def test_a_rule_for_all_around_it_changes_nothing(self, book: RuleBook, target: object) -> None:
        obj = as_object(target)
        ours = book.verdict(obj)
        package = describe(list(layers(obj))[-1]).module.partition(".")[0]
        wide = Rule(package, Decision.SKIP, "the whole package", priority=-(10**6))
        around = SimpleNamespace(armature_rules=hookimpl(rows(wide)))
        verdict = book_with(tested=type(self).plugin, around=around).verdict(obj)
        changed = f"a weaker rule for {package} changes the verdict on {target}"
        assert (verdict.decision, verdict.reason) == (ours.decision, ours.reason), changed

    def test_names_exist(self, book: RuleBook) -> None:
        missing = {str(m.rule.target): m.why for m in book.missing()}
        unexpected = [why for name, why in missing.items() if name not in type(self).absent]
        assert not unexpected, "; ".join(unexpected)

    def test_no_contradictions(self, book: RuleBook) -> None:
        seen: dict[tuple[object, str, int], Rule] = {}
        for rule, _ in book.rows():
            held = seen.setdefault((rule.target, rule.requires, rule.priority), rule)
            assert held.decision is rule.decision, f"{rule.target}: {held} and {rule}"


def rows(*rules: Rule | RuleTable) -> Callable[[], tuple[Rule | RuleTable, ...]]:
    """Make a function that returns these rules, to be a plugin's `armature_rules`."""

    def armature_rules() -> tuple[Rule | RuleTable, ...]:
        return rules

    return armature_rules
