"""Which rule answers, and what is kept of those that lost."""

from __future__ import annotations

import copy
import functools
import json
import math
import operator
import sys
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._functorch.eager_transforms import grad_and_value_impl

from armature.hookspecs import hookimpl
from armature.plugin_api import Handler, Polyfill
from armature.plugins import PluginManager
from armature.rules import Decision, Rule, RuleOrigin, RuleTable, Subject, Verdict
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


def decorated(decorator: Callable[..., object]) -> Callable[..., object]:
    namespace: dict[str, object] = {"decorator": decorator, "__name__": __name__}
    exec("@decorator\ndef hidden(x):\n    return x", namespace)
    return namespace["hidden"]  # type: ignore[return-value]


def keeping_the_name(function: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(function)
    def wrapper(*args: object) -> object:
        return function(*args)

    return wrapper


def test_a_rule_for_a_decorated_function_holds_for_what_is_under_the_decorators() -> None:
    """As those of function transforms: the frame under the wrapper is the function that was named."""
    wrapper = decorated(lambda f: keeping_the_name(keeping_the_name(f)))
    inner = wrapper.__wrapped__.__wrapped__  # type: ignore[attr-defined]
    book = book_of(Rule(wrapper, Decision.SKIP, "the whole"))
    for function in (wrapper, wrapper.__wrapped__, inner):  # type: ignore[attr-defined]
        assert book.verdict(function).reason == "the whole"
        assert book.frame_verdict(function.__code__, {"__name__": __name__}).reason == "the whole"
    nearer = book_of(Rule(wrapper, Decision.SKIP, "the whole"), Rule(inner, Decision.INLINE, "the inner one"))
    assert nearer.verdict(inner).reason == "the inner one"
    assert nearer.verdict(wrapper).reason == "the whole"


def test_a_decorator_with_a_name_of_its_own_is_another_function() -> None:
    wrapper = functools.update_wrapper(lambda x: x, user_function, assigned=())
    book = book_of(Rule(wrapper, Decision.SKIP, "the wrapper"))
    assert book.verdict(user_function).decision is Decision.INLINE


def test_function_transforms_of_torch() -> None:
    book = book_of(Rule("torch._functorch.eager_transforms.grad_and_value_impl", Decision.SKIP, "a transform"))
    wrapper = grad_and_value_impl
    assert book.verdict(wrapper).reason == "a transform"
    assert wrapper.__wrapped__ is not wrapper
    assert book.frame_verdict(wrapper.__wrapped__.__code__, wrapper.__wrapped__.__globals__).reason == "a transform"


def test_a_function_that_hides_a_module_of_its_name() -> None:
    """torch.autograd.variable is a function; the module of that name is found by importing it only."""
    book = book_of(Rule("torch.autograd.variable", Decision.IN_GRAPH, "the function"))
    assert book.verdict(torch.autograd.variable).reason == "the function"
    module = sys.modules["torch.autograd.variable"]
    assert book.verdict(module.VariableMeta.__instancecheck__).reason != "the function"


@pytest.mark.parametrize(
    "obj", [operator.itemgetter(1), operator.methodcaller("x"), functools.cmp_to_key(max)(1), types.GenericAlias]
)
def test_instances_without_python_code(obj: object) -> None:
    verdict = book_of(Rule("operator", Decision.INLINE, "all of it")).verdict(obj)
    assert verdict.decision is Decision.SKIP
    assert verdict.reason


def test_a_table_of_rules() -> None:
    table = RuleTable(
        ("torch.nn.functional.relu", "torch.nn.Linear#forward", "torch.nn.functional.no_such"),
        Decision.SKIP,
        "from a file",
        priority=2,
        file="rules.toml",
        line=10,
    )
    plugin = SimpleNamespace(armature_rules=hookimpl(rows(table, Rule(F.relu, Decision.INLINE, "weaker", priority=1))))
    book = book_with(mine=plugin)
    verdict = book.verdict(nn.Linear.forward)
    assert (verdict.reason, verdict.origin) == ("from a file", RuleOrigin("mine", "rules.toml", 11))
    assert [v.reason for v in book.verdict(F.relu).overruled] == ["weaker"]
    (missing,) = book.missing()
    assert (missing.rule.target, missing.rule.origin) == (table.names[2], RuleOrigin("mine", "rules.toml", 12))
    assert len(list(book.rows())) == 4


def test_a_table_for_another_version() -> None:
    names = ("torch.nn.functional.relu", "torch.nn.functional.gelu")
    table = RuleTable(names, Decision.SKIP, "for old ones", requires="torch<1.0")
    book = book_with(mine=SimpleNamespace(armature_rules=hookimpl(rows(table))))
    assert book.verdict(F.relu).decision is Decision.INLINE
    assert [m.rule.target for m in book.missing()] == list(names)


def test_tables_collide_by_name() -> None:
    manager = PluginManager(find=lambda: ())
    table = RuleTable(("json.dumps", "json.loads"), Decision.SKIP, "of the table", priority=1)
    manager.register(SimpleNamespace(armature_rules=hookimpl(rows(table))), "one")
    rule = Rule("json.loads", Decision.INLINE, "of the rule")
    manager.register(SimpleNamespace(armature_rules=hookimpl(rows(rule))), "two")
    (contest,) = manager.tables().contests()
    assert contest.key == "json.loads"
    assert (contest.winner.value.reason, [row.value.reason for row in contest.losers]) == (
        "of the table",
        [rule.reason],
    )
    counts = {plugin.name: manager.tables().counts(plugin)["rules"] for plugin in manager.tables().plugins}
    assert counts == {"one": 2, "two": 1}


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


def test_what_a_class_has_from_object_is_not_its_own() -> None:
    """A rule for it would be one for all classes. It is told as one that names nothing."""
    book = book_of(
        Rule("torch.nn.Identity#__eq__", Decision.SKIP, "of this class"),
        Rule("torch.nn.Linear#forward", Decision.SKIP, "its own"),
        Rule("builtins.object#__ne__", Decision.SKIP, "of all"),
    )
    assert book.verdict(object.__eq__).reason != "of this class"
    assert book.verdict(torch.nn.Linear.forward).reason == "its own"
    assert book.verdict(object.__ne__).reason == "of all"
    assert [missing.rule.target for missing in book.missing()] == ["torch.nn.Identity#__eq__"]


def test_a_verdict_without_a_reason_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="reason"):
        Verdict(Decision.SKIP, "", RuleOrigin("test"))
    with pytest.raises(ValueError, match="reason"):
        Rule("torch", Decision.SKIP, "")


def test_what_other_rows_speak_of() -> None:
    """A polyfill or handler is asked before the rules: where no rule speaks, the verdict says so."""
    given = SimpleNamespace(
        armature_polyfills=hookimpl(lambda: [Polyfill(math.hypot, user_function)]),
        armature_handlers=hookimpl(lambda: [Handler((math.sqrt,), lambda call, x: None)]),
    )
    book = book_with(given=given)
    polyfilled, handled = book.verdict(math.hypot), book.verdict(math.sqrt)
    assert (polyfilled.decision, polyfilled.origin.plugin) == (Decision.INLINE, "given")
    assert (handled.decision, handled.origin.plugin) == (Decision.SKIP, "given")
    assert "polyfill" in polyfilled.reason
    assert "handler" in handled.reason
    assert "written in C" in book.verdict(math.sin).reason


def line_of(function: Callable[..., object]) -> tuple[str, int]:
    code = function.__code__
    return code.co_filename, code.co_firstlineno


@pytest.mark.parametrize(
    "obj", [user_function, len.__init__, torch.add, 3, nn.Linear, functools.partial(user_function)]
)
def test_what_holds_by_default_has_a_line_too(obj: object) -> None:
    origin = book_of().verdict(obj).origin
    text = Path(origin.file).read_text().splitlines()[origin.line - 1]
    assert (origin.plugin, text) == ("armature", "def _default(subject: Subject) -> Verdict:")


def test_rows_that_tell_no_line_have_that_of_their_hook() -> None:
    @hookimpl
    def given() -> list[Rule | RuleTable]:
        return [
            Rule("json.loads", Decision.SKIP, "no origin"),
            Rule("json.load", Decision.SKIP, "no line", origin=RuleOrigin("own", "somewhere.toml")),
            RuleTable(("json.dump", "json.dumps"), Decision.SKIP, "no file"),
            RuleTable(("copy.copy", "copy.deepcopy"), Decision.SKIP, "no line", file="somewhere.toml"),
        ]

    book = book_with(own=SimpleNamespace(armature_rules=given))
    for fn in (json.loads, json.load, json.dump, json.dumps, copy.copy, copy.deepcopy):
        origin = book.verdict(fn).origin
        assert (origin.plugin, (origin.file, origin.line)) == ("own", line_of(given)), fn
    assert {(origin.file, origin.line) for _, origin in book.rows()} == {line_of(given)}


def test_a_hook_that_wraps_a_function_has_its_line() -> None:
    partial = hookimpl(functools.partial(rows(Rule("json.loads", Decision.SKIP, "of a partial"))))
    origin = book_with(own=SimpleNamespace(armature_rules=partial)).verdict(json.loads).origin
    assert Path(origin.file).is_file()
    assert origin.line > 0
