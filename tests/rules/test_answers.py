"""Functions of torch that give plain values: folded as their rule says, asked again where the answer may change."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import armature
from armature import plugins
from armature.hookspecs import hookimpl
from armature.introspection import MISSING, find_loaded
from armature.rules import Answer, Decision, Rule
from armature.testing.rules_kit import rows
from armature.trace.recording.folding import WHILE_COMPILING
from armature_builtin_rules import load

X = torch.zeros(2)
SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "nnpack": (torch._C._get_nnpack_enabled, torch._C._set_nnpack_enabled),
    "mkldnn": (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    "flash": (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    "warnings": (torch.is_warn_always_enabled, torch.set_warn_always),
    "conversion": (
        torch.__future__.get_overwrite_module_params_on_conversion,
        torch.__future__.set_overwrite_module_params_on_conversion,
    ),
    "cudnn": (torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled),
    "fill": (
        torch._C._get_deterministic_fill_uninitialized_memory,
        torch._C._set_deterministic_fill_uninitialized_memory,
    ),
    "executor": (torch._C._get_graph_executor_optimize, torch._C._set_graph_executor_optimize),
}


@pytest.fixture(autouse=True)
def fresh() -> None:
    armature.reset()


def named(answer: Answer) -> Iterator[tuple[str, Any]]:
    for table in load.rules():
        if table.answer is answer:
            yield from ((name, obj) for name in table.names if (obj := find_loaded(name)) is not MISSING)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_changes_between_calls(name: str) -> None:
    get, change = SETTINGS[name]

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if get() else x - 1

    compiled, before = armature.compile(fn, backend="eager", fullgraph=True), get()
    try:
        for value in (before, not before, before, not before):
            change(value)
            assert torch.equal(compiled(X), fn(X)), value
    finally:
        change(before)


@pytest.mark.parametrize("answer", WHILE_COMPILING)
def test_what_is_answered_while_compiling(answer: Answer) -> None:
    functions = [fn for _, fn in named(answer)]
    assert functions
    for ask in functions:
        armature.reset()  # all share one code

        def fn(x: torch.Tensor, ask: Callable[[], object] = ask) -> tuple[torch.Tensor, object]:
            return x + 1, ask()

        assert armature.compile(fn, backend="eager", fullgraph=True)(X)[1] is WHILE_COMPILING[answer], ask


def test_what_depends_on_arguments_alone_is_folded_without_a_guard() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, object, object]:
        return x + 1, torch.promote_types(torch.float32, torch.int64), torch.can_cast(torch.float32, torch.int64)

    report = armature.explain(fn)(X)
    assert report.graph_count == 1
    assert armature.compile(fn, backend="eager", fullgraph=True)(X)[1:] == (torch.float32, False)
    assert not [guard for guard in report.guards if "promote_types" in guard]


def test_the_guard_says_what_it_asks() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch._C._get_nnpack_enabled() else x - 1

    (guard,) = [text for text in armature.explain(fn)(X).guards if "_get_nnpack_enabled() == " in text]
    line = inspect.getsourcelines(fn)[1] + 1
    assert f"test_answers.py:{line}" in guard


def test_an_answer_of_which_nothing_is_known_breaks_the_graph() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + torch._C._jit_get_num_profiled_runs()

    own = SimpleNamespace()
    own.armature_rules = hookimpl(rows(Rule("torch._C._jit_get_num_profiled_runs", Decision.IN_GRAPH, "asks", 1)))
    with plugins.manager().registered(own, "own"):
        compiled = armature.compile(fn, backend="eager", fullgraph=True)
        with pytest.raises(armature.errors.Unsupported, match="_jit_get_num_profiled_runs is called without a tensor"):
            compiled(X)
    assert torch.equal(armature.compile(fn, backend="eager")(X), fn(X))


def test_a_plugin_says_that_it_is_foldable() -> None:
    rule = Rule(
        "torch._C._jit_get_num_profiled_runs",
        Decision.IN_GRAPH,
        "it is never changed here",
        priority=1,
        answer=Answer.OF_ARGUMENTS,
    )

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + torch._C._jit_get_num_profiled_runs()

    with plugins.manager().registered(SimpleNamespace(armature_rules=hookimpl(rows(rule))), "foldable"):
        assert torch.equal(armature.compile(fn, backend="eager", fullgraph=True)(X), fn(X))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_setting_can_be_asked_again() -> None:
    """What is guarded by asking again must take no argument that has to be a tensor, and change nothing."""
    asked = 0
    for name, fn in named(Answer.OF_SETTINGS):
        last = name.rpartition(".")[2]
        if not last.startswith(("is_", "_is_", "get_", "_get_", "has_", "_has_")):
            continue
        try:
            first = fn()
        except (TypeError, RuntimeError, ImportError, AssertionError, ValueError, AttributeError):
            continue  # it needs arguments, or a device
        if isinstance(first, (bool, int, str)):
            asked += 1
            assert fn() == first, name
    assert asked > 40
