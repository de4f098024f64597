"""Which rule answers, and what is kept of those that lost."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from armature.hookspecs import hookimpl
from armature.rules import Decision, Rule, RuleOrigin, Subject, Verdict
from armature.testing.rules_kit import book_of, book_with, rows

ONE_HOT = "torch.nn.functional.one_hot"


def user_function(x: int) -> int:
    return x + 1


def always(decision: Decision) -> Callable[[Subject], Verdict | None]:
    return lambda subject: Verdict(decision, "computed", RuleOrigin("test", __file__, 1))


def test_python_is_inlined_and_c_is_not_when_no_rule_speaks() -> None:
    book = book_of()
    assert book.verdict(user_function).decision is Decision.INLINE
    assert book.verdict(torch.add).decision is Decision.SKIP
    assert "written in C" in book.verdict(torch.add).reason
    assert book.verdict(3).reason == "not a callable"


def test_a_rule_for_the_object_beats_one_for_its_module() -> None:
    book = book_of(Rule("torch.nn", Decision.SKIP, "module", priority=9), Rule(F.relu, Decision.IN_GRAPH, "object"))
    verdict = book.verdict(F.relu)
    assert (verdict.decision, [v.reason for v in verdict.overruled]) == (Decision.IN_GRAPH, ["module"])


def test_inline_beats_skip_for_modules_and_the_nearer_name_comes_first() -> None:
    book = book_of(
        Rule("torch.nn.functional", Decision.SKIP, "near skip"),
        Rule("torch", Decision.INLINE, "far inline"),
        Rule("torch.nn", Decision.INLINE, "near inline"),
    )
    verdict = book.verdict(F.relu)
    assert verdict.reason == "near inline"
    assert [v.reason for v in verdict.overruled] == ["far inline", "near skip"]


def test_a_larger_priority_decides_within_a_step() -> None:
    book = book_of(
        Rule("torch.nn", Decision.INLINE, "weak"), Rule("torch.nn.functional", Decision.SKIP, "strong", priority=1)
    )
    assert book.verdict(F.relu).reason == "strong"


def test_the_packages_own_file() -> None:
    book = book_of(Rule("torch.nn.__init__", Decision.SKIP, "only the file"))
    assert book.verdict(nn.Linear).reason != "only the file"
    assert book.verdict(nn.factory_kwargs).reason == "only the file"


def test_what_is_computed_stands_between_object_and_module() -> None:
    module, named = Rule("torch.nn", Decision.INLINE, "module"), Rule(ONE_HOT, Decision.SKIP, "object")
    book = book_of(module, named, answers=[always(Decision.IN_GRAPH)])
    assert book.verdict(F.relu).reason == "computed"
    assert [v.reason for v in book.verdict(F.relu).overruled] == ["module"]
    assert book.verdict(F.one_hot).reason == "object"


@pytest.mark.parametrize(
    "target", [nn.Linear.forward, "torch.nn.Linear#forward", "torch.nn.modules.linear.Linear#forward"]
)
def test_methods(target: Callable[..., object] | str) -> None:
    book = book_of(Rule(target, Decision.SKIP, "method"))
    assert book.verdict(nn.Linear.forward).reason == "method"
    assert book.verdict(nn.Linear(1, 1).forward).reason == "method"
    assert book.verdict(nn.Bilinear.forward).reason != "method"


def test_wrappers_are_looked_through() -> None:
    book = book_of(Rule(user_function, Decision.SKIP, "mine"))
    partial = functools.partial(functools.partial(user_function), 1)
    assert book.verdict(partial).reason == "mine"
    assert book.verdict(functools.lru_cache(user_function)).reason == "mine"
    assert book.verdict(staticmethod(user_function)).reason == "mine"


def test_a_rule_for_a_partial_says_nothing_about_its_function() -> None:
    partial = functools.partial(user_function, 1)
    book = book_of(Rule(partial, Decision.SKIP, "the partial"))
    assert book.verdict(partial).reason == "the partial"
    assert book.verdict(user_function).decision is Decision.INLINE


def test_bound_methods_in_c() -> None:
    book = book_of(Rule("torch.Tensor#add", Decision.IN_GRAPH, "add"), Rule("list#append", Decision.SKIP, "no module"))
    assert book.verdict(torch.ones(1).add).reason == "add"
    assert book.verdict(torch.Tensor.add).reason == "add"
    assert book.verdict(torch.ones(1).sub).reason != "add"


def test_inline_means_nothing_for_what_is_written_in_c() -> None:
    book = book_of(Rule("math", Decision.INLINE, "all of math"))
    assert book.verdict(math.sin).decision is Decision.SKIP


def test_frames() -> None:
    book = book_of(
        Rule("torch.nn.functional.relu", Decision.IN_GRAPH, "one node"),
        Rule("torch.nn.functional.softmax", Decision.SKIP, "this frame"),
        Rule("torch.nn", Decision.INLINE, "modules"),
    )
    assert book.frame_verdict(F.relu.__code__, F.relu.__globals__).reason == "modules"
    assert book.frame_verdict(F.softmax.__code__, F.softmax.__globals__).reason == "this frame"
    assert book.frame_verdict(user_function.__code__, user_function.__globals__).decision is Decision.INLINE


def test_versions_limit_a_rule() -> None:
    book = book_of(
        Rule(user_function, Decision.SKIP, "old", requires="torch<1.0"),
        Rule(user_function, Decision.IN_GRAPH, "new", requires="torch>=2"),
        Rule(user_function, Decision.SKIP, "other", requires="no-such-distribution>=1"),
    )
    assert book.verdict(user_function).reason == "new"
    assert [m.why.split(",")[0] for m in book.missing()] == [
        "it is for torch<1.0", "it is for no-such-distribution>=1",
    ]  # fmt: skip


def test_names_that_do_not_exist_are_told_and_harmless() -> None:
    book = book_of(Rule("torch.nn.functional.no_such", Decision.SKIP, "x"), Rule(ONE_HOT, Decision.SKIP, "there"))
    assert book.verdict(F.one_hot).reason == "there"
    assert [m.rule.target for m in book.missing()] == ["torch.nn.functional.no_such"]


def test_two_plugins_that_disagree() -> None:
    gentle = SimpleNamespace(armature_rules=hookimpl(rows(Rule(user_function, Decision.INLINE, "it is fine"))))
    strict = SimpleNamespace(armature_rules=hookimpl(rows(Rule(user_function, Decision.SKIP, "it is not", priority=5))))
    verdict = book_with(gentle=gentle, strict=strict).verdict(user_function)
    assert (verdict.decision, verdict.origin.plugin) == (Decision.SKIP, "strict")
    assert [(v.origin.plugin, v.reason) for v in verdict.overruled] == [("gentle", "it is fine")]


def test_a_verdict_without_a_reason_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="reason"):
        Verdict(Decision.SKIP, "", RuleOrigin("test"))
    with pytest.raises(ValueError, match="reason"):
        Rule("torch", Decision.SKIP, "")
