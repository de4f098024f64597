"""`armature.rules.skip`, `inline`, `in_graph`: as calls, context managers and decorators, with their effect on tracing."""

from __future__ import annotations

import copy
import functools
import math
import pickle
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import armature
from armature.errors import Unsupported
from armature.frame.hook import COMPILE_LOCK
from armature.pipeline.session import session
from armature.plugins import manager
from armature.rules import Decision, declare
from armature.rules.errors import BadTarget

X = torch.linspace(-1, 1, 8)
NAMES = ["skip", "inline", "in_graph"]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    armature.reset()
    with manager().user.apart(), armature.config.patch(strict=True):
        yield
    armature.reset()


def double(x: Any) -> Any:
    return x * 2


def calls_double(x: Any) -> Any:
    return double(x) + 1


class Scale:
    def __init__(self, by: float) -> None:
        self.by = by

    def apply(self, x: Any) -> Any:
        return x * self.by


def whole(fn: Any) -> Any:
    return armature.compile(fn, backend="eager", fullgraph=True)


def targets() -> list[Any]:
    module = session().compilations[-1].module
    assert module is not None
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("name", NAMES)
def test_a_call_a_with_and_both_decorators(name: str) -> None:
    say, decision = getattr(armature.rules, name), Decision(name)
    before = armature.why(double)
    given = say(double)
    assert armature.why(double).decision is decision
    assert armature.why(double).origin.file == __file__
    given.undo()
    assert armature.why(double) == before
    with say(double, reason="for the test"):
        assert armature.why(double).reason == "for the test"
    assert armature.why(double) == before

    @say
    def bare(x: Any) -> Any:
        return x + 1

    @say(reason="with a reason")
    def with_reason(x: Any) -> Any:
        return x + 1

    assert armature.why(bare).decision is armature.why(with_reason).decision is decision
    assert isinstance(with_reason, types.FunctionType)
    assert torch.equal(bare(X), with_reason(X))


def test_a_skipped_function_breaks_and_gives_what_eager_gives() -> None:
    assert torch.equal(whole(calls_double)(X), calls_double(X))
    with armature.rules.skip(double):
        with pytest.raises(Unsupported, match=r"armature\.rules\.skip at"):
            whole(calls_double)(X)
        assert torch.equal(armature.compile(calls_double, backend="eager")(X), calls_double(X))
    assert torch.equal(whole(calls_double)(X), calls_double(X))


def test_what_was_compiled_follows_the_rules_of_now() -> None:
    compiled = whole(calls_double)
    compiled(X)
    assert double not in targets()
    with armature.rules.in_graph(double):
        assert torch.equal(compiled(X), calls_double(X))
        assert double in targets()
    assert torch.equal(compiled(X), calls_double(X))
    assert double not in targets() and len(session().compilations) == 3


def test_a_later_rule_goes_before_an_earlier_one_and_comes_back() -> None:
    with armature.rules.skip(double), armature.rules.in_graph(double):
        assert armature.why(double).decision is Decision.IN_GRAPH
        with armature.rules.inline(double):
            verdict = armature.why(double)
            assert verdict.decision is Decision.INLINE
            assert [lost.decision for lost in verdict.overruled[:2]] == [Decision.IN_GRAPH, Decision.SKIP]
        assert armature.why(double).decision is Decision.IN_GRAPH
    assert not manager().user.declared


def test_undo_twice_and_in_another_order() -> None:
    first, second = armature.rules.skip(double), armature.rules.in_graph(double)
    first.undo()
    first.undo()
    assert armature.why(double).decision is Decision.IN_GRAPH
    second.undo()
    assert armature.why(double).decision is Decision.INLINE


def test_undone_when_the_body_raises() -> None:
    with pytest.raises(ZeroDivisionError), armature.rules.skip(double):
        raise ZeroDivisionError
    assert armature.why(double).decision is Decision.INLINE


@pytest.mark.parametrize("target", ["json.dumps", "json.JSONEncoder#encode", "json"])
def test_names(target: str) -> None:
    with armature.rules.skip(target):
        assert armature.why("json.dumps" if target == "json" else target).decision is Decision.SKIP
    assert armature.why("json.dumps").decision is Decision.INLINE


def test_modules_methods_and_classes() -> None:
    module = types.ModuleType("made_for_the_test")
    exec("def plus(x):\n    return x + 1", vars(module))
    sys.modules[module.__name__] = module
    try:
        with armature.rules.skip(module), pytest.raises(Unsupported):
            whole(lambda x: module.plus(x) * 2)(X)
    finally:
        del sys.modules[module.__name__]
    scale = Scale(3.0)
    for target in (Scale.apply, scale.apply):
        with armature.rules.skip(target), pytest.raises(Unsupported):
            whole(lambda x: scale.apply(x) + 1)(X)
    with armature.rules.skip(Scale), pytest.raises(Unsupported):
        whole(lambda x: Scale(2.0).apply(x))(X)
    assert torch.equal(whole(lambda x: Scale(2.0).apply(x))(X), X * 2)


def test_a_users_rule_goes_before_handlers_polyfills_and_the_interpreters_own_ways() -> None:
    for fn, target in (
        (lambda x: x * torch.numel(x), torch.numel),
        (lambda x: x * functools.reduce(lambda a, b: a + b, [1, 2]), functools.reduce),
        (lambda x: x * len([1, 2]), len),
        (lambda x: x.relu() + 1, torch.Tensor.relu),
    ):
        with armature.rules.skip(target), pytest.raises(Unsupported, match=r"armature\.rules\.skip"):
            whole(fn)(X)
        assert torch.equal(whole(fn)(X), fn(X))


def test_the_frame_of_a_skipped_function_runs_eagerly_and_what_it_calls_is_compiled() -> None:
    with armature.rules.skip(calls_double):
        assert torch.equal(armature.compile(calls_double, backend="eager")(X), calls_double(X))
        assert [c.function for c in session().compilations] == ["double"]


def test_decorated_functions_in_compiled_code() -> None:
    @armature.rules.in_graph
    def kept(x: Any) -> Any:
        return x * 5

    class Model(torch.nn.Module):
        @armature.rules.skip
        def left(self, x: Any) -> Any:
            return x - 1

        def forward(self, x: Any) -> Any:
            return kept(x)

    assert torch.equal(whole(Model())(X), X * 5)
    assert kept.__wrapped__ in targets()  # type: ignore[attr-defined]
    assert isinstance(vars(Model)["left"], types.FunctionType)
    assert torch.equal(Model().left(X), X - 1)
    assert armature.why(Model.left).decision is Decision.SKIP
    assert torch.equal(whole(kept)(X), X * 5)


@armature.rules.inline
def at_module_level(x: Any, by: int = 2) -> Any:
    """With a docstring."""
    return x * by


at_module_level.undo()  # the rule would hold for all other tests of the process


def test_a_bare_decorator_gives_something_like_the_function() -> None:
    assert at_module_level.__name__ == "at_module_level" and at_module_level.__doc__ == "With a docstring."
    assert at_module_level.__defaults__ == (2,)
    assert copy.copy(at_module_level) is at_module_level
    assert pickle.loads(pickle.dumps(at_module_level)).__name__ == "at_module_level"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", [3, "", "not a name", "a..b", "json.dumps()", "a#b#c", None, torch.ones(1)])
def test_what_is_no_target_is_refused(name: str, target: Any) -> None:
    with pytest.raises(BadTarget, match=f"A220.*armature.rules.{name}"):
        getattr(armature.rules, name)(target)
    assert not manager().user.declared


async def coroutine(x: Any) -> Any:
    return x


def generator(x: Any) -> Iterator[Any]:
    yield x


@pytest.mark.parametrize(
    ("name", "target", "problem"),
    [
        ("inline", torch.sin, "no Python code"),
        ("inline", math.sqrt, "armature.substitute"),
        ("in_graph", Scale, "not objects of a class"),
        ("in_graph", coroutine, "runs in pieces"),
        ("in_graph", generator, "runs in pieces"),
        ("skip", torch.nn.Linear(1, 1), "armature.disable"),
    ],
)
def test_what_cannot_be_treated_so_is_refused(name: str, target: Any, problem: str) -> None:
    with pytest.raises(BadTarget, match=problem):
        getattr(armature.rules, name)(target)


def test_the_rule_of_a_name_cannot_decorate() -> None:
    with pytest.raises(BadTarget, match="decorator"):

        @armature.rules.skip("json.dumps")
        def f() -> None: ...


def test_a_reason_is_a_text() -> None:
    with pytest.raises(BadTarget, match="reason"):
        armature.rules.skip(double, reason=3)  # type: ignore[arg-type]


def test_there_is_nothing_else_to_say() -> None:
    with pytest.raises(AttributeError):
        armature.rules.skipp  # type: ignore[attr-defined]


def test_a_compilation_elsewhere_is_waited_for_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declare, "LONGEST_WAIT", 0.01)
    held, done = threading.Event(), threading.Event()

    def compile_long() -> None:
        with COMPILE_LOCK:
            held.set()
            done.wait(10)

    other = threading.Thread(target=compile_long)
    other.start()
    held.wait(10)
    try:
        with armature.rules.skip(double):
            assert armature.why(double).decision is Decision.SKIP
    finally:
        done.set()
        other.join()
    assert armature.why(double).decision is Decision.INLINE


def test_a_rule_holds_in_all_threads() -> None:
    found: list[Any] = []
    with armature.rules.skip(double):
        other = threading.Thread(target=lambda: found.append(armature.why(double).decision))
        other.start()
        other.join()
    assert found == [Decision.SKIP]


def test_the_user_is_a_plugin_like_any_other() -> None:
    with armature.rules.skip(double):
        assert "user" in [plugin.name for plugin in manager().plugins]
        with armature.config.patch(disabled_plugins=frozenset({"user"})):
            assert armature.why(double).decision is Decision.INLINE
        assert armature.why(double).decision is Decision.SKIP


def test_a_rule_given_while_a_frame_is_compiled() -> None:
    given: list[Any] = []

    @armature.trace_through
    def rude(x: Any) -> Any:
        if not given:
            given.append(armature.rules.skip("json.dumps"))
        return x + 1

    compiled = whole(lambda x: rude(x) * 2)
    other = whole(calls_double)
    for size in (3, 4, 5):
        x = torch.ones(size)
        given.clear()
        assert torch.equal(other(x), calls_double(x))
        assert torch.equal(compiled(x), (x + 1) * 2)
    assert armature.why("json.dumps").decision is Decision.SKIP
