"""What `RulesConformance` gives a rule author: it is content with sound rules, and finds what is wrong with others."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

import armature.testing
from armature import config
from armature.errors import DuplicateRow
from armature.hookspecs import hookimpl
from armature.introspection import describe
from armature.rules import Decision, Rule, RuleOrigin, Verdict
from armature.testing.rules_kit import RulesConformance, rows

HERE = RuleOrigin("whoever", __file__, 1)


def giving(*rules: Rule) -> object:
    return SimpleNamespace(armature_rules=hookimpl(rows(*rules)))


class TestSound(RulesConformance):
    plugin = giving(
        Rule("json.dumps", Decision.SKIP, "text, not tensors"),
        Rule(textwrap.dedent, Decision.INLINE, "plain Python over text"),
        Rule("json.decoder", Decision.SKIP, "reads text by regular expressions"),
        Rule("json.decoder.JSONDecoder#raw_decode", Decision.INLINE, "only calls the scanner"),
        Rule("no_such_library", Decision.SKIP, "a library that is not here"),
    )
    verdicts: Mapping[Any, Decision] = {
        "json.dumps": Decision.SKIP,
        textwrap.dedent: Decision.INLINE,
        "json.decoder.JSONDecoder#decode": Decision.SKIP,
        json.JSONDecoder.raw_decode: Decision.INLINE,
    }
    absent = frozenset({"no_such_library"})


def suite(plugin: object, verdicts: Mapping[Any, Decision]) -> RulesConformance:
    made: type[RulesConformance] = type("Made", (RulesConformance,), {"plugin": plugin, "verdicts": verdicts})
    return made()


def book_in(tests: RulesConformance) -> Any:
    return type(tests).book.__wrapped__(tests)  # type: ignore[attr-defined]


def test_it_is_public() -> None:
    assert armature.testing.RulesConformance is RulesConformance


def test_a_target_that_is_not_there() -> None:
    with pytest.raises(LookupError, match=r"json\.no_such"):
        suite(giving(), {}).test_target_exists("json.no_such")


def test_another_verdict_than_expected() -> None:
    tests = suite(giving(Rule("json.dumps", Decision.SKIP, "text, not tensors")), {"json.dumps": Decision.INLINE})
    with pytest.raises(AssertionError, match="text, not tensors"):
        tests.test_verdict(book_in(tests), "json.dumps")


def test_a_target_of_which_no_rule_speaks() -> None:
    tests = suite(giving(), {"json.dumps": Decision.INLINE})
    tests.test_verdict(book_in(tests), "json.dumps")
    with pytest.raises(AssertionError, match=r"speaks of json\.dumps"):
        tests.test_reason_and_origin(book_in(tests), "json.dumps")


def test_a_reason_that_says_nothing() -> None:
    tests = suite(giving(Rule("json.dumps", Decision.SKIP, "no")), {"json.dumps": Decision.SKIP})
    with pytest.raises(AssertionError):
        tests.test_reason_and_origin(book_in(tests), "json.dumps")


def test_an_origin_that_cannot_be_opened() -> None:
    rule = Rule("json.dumps", Decision.SKIP, "text, not tensors", origin=RuleOrigin("x", "no/such/file.toml", 3))
    tests = suite(giving(rule), {"json.dumps": Decision.SKIP})
    with pytest.raises(AssertionError):
        tests.test_reason_and_origin(book_in(tests), "json.dumps")


def test_a_verdict_that_changes_when_asked_again() -> None:
    """A plugin whose answer depends on how often it was asked: what is kept of it is an accident."""
    answers = iter([Decision.SKIP, Decision.INLINE])

    class Slotted:
        __slots__ = ()

        def __call__(self) -> int:
            return 1

    @hookimpl
    def armature_decide(subject: Any) -> Verdict | None:
        mine = describe(subject.obj).qualname.endswith("Slotted.__call__")
        return Verdict(next(answers), "as it comes", HERE) if mine else None

    target = Slotted()
    tests = suite(SimpleNamespace(armature_decide=armature_decide), {target: Decision.SKIP})
    with pytest.raises(AssertionError):
        tests.test_the_answer_is_kept(book_in(tests), target)


def test_a_priority_that_no_one_can_overrule() -> None:
    rule = Rule("json.dumps", Decision.SKIP, "text, not tensors", priority=10**9)
    tests = suite(giving(rule), {"json.dumps": Decision.SKIP})
    with pytest.raises(AssertionError):
        tests.test_a_higher_priority_wins_and_keeps_the_loser(book_in(tests), "json.dumps")


def test_a_rule_that_any_other_overrules() -> None:
    rule = Rule("json.encoder", Decision.SKIP, "text, not tensors", priority=-(10**9))
    tests = suite(giving(rule), {"json.encoder.JSONEncoder#encode": Decision.SKIP})
    with pytest.raises(AssertionError):
        tests.test_a_rule_for_all_around_it_changes_nothing(book_in(tests), "json.encoder.JSONEncoder#encode")


def test_a_name_that_is_not_there() -> None:
    tests = suite(giving(Rule("json.no_such", Decision.SKIP, "text, not tensors")), {})
    with pytest.raises(AssertionError, match=r"json\.no_such"):
        tests.test_names_exist(book_in(tests))


def test_rules_that_contradict() -> None:
    both = [Rule("json.dumps", decision, "text, not tensors") for decision in (Decision.SKIP, Decision.INLINE)]
    tests = suite(giving(*both), {})
    with config.patch(strict=True), pytest.raises(DuplicateRow, match=r"json\.dumps"):
        book_in(tests)
    with config.patch(strict=False), pytest.raises(AssertionError, match=r"json\.dumps"):
        tests.test_no_contradictions(book_in(tests))


def test_each_target_is_a_test_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine="""
        from armature.plugin_api import Decision, Rule, hookimpl
        from armature.testing import RulesConformance

        class Plugin:
            @hookimpl
            def armature_rules(self):
                return [Rule("json.dumps", Decision.SKIP, "text, not tensors")]

        class TestMine(RulesConformance):
            plugin = Plugin()
            verdicts = {"json.dumps": Decision.SKIP, "json.loads": Decision.SKIP}
        """
    )
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] == 3, (
        "no rule speaks of json.loads: its verdict, its origin and what overrules it are wrong"
    )
    assert outcomes["passed"] > 8
