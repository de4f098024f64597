"""Functions that act on the process: none of those with a rule runs while a program is traced."""

from __future__ import annotations

import re
import tomllib
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import armature
from armature import plugins
from armature.hookspecs import hookimpl
from armature.introspection import MISSING, find_loaded
from armature.rules import Answer, Decision, Rule
from armature.testing.rules_kit import rows
from armature_builtin_rules import derived, load

X = torch.ones(2)
# Where torch's build puts the bindings that it generates, one for each operator of the dispatcher.
GENERATED = ("_VariableFunctions", "_nn", "_fft", "_linalg", "_special", "_sparse", "_nested")
OWNERS = [find_loaded(f"torch._C.{name}") for name in GENERATED]
OPERATORS = {id(fn): fn for owner in OWNERS for fn in (getattr(owner, name) for name in dir(owner))}
DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType)
ACTS = re.compile(
    r"(^|_)(set|unset|reset|enable|disable|push|pop|seed|synchronize|empty_cache|clear|start|stop|record|register|init|"
    r"increment|decrement|enter|exit|alloc|delete|load|save|dump|import|toggle|crash|warn|stash|commit|rename|wait|fork)"
    r"(_|$)"
)
# What has such a word in its name and only computes or asks.
HARMLESS = {
    "torch.is_warn_always_enabled",
    "torch._C._get_backcompat_broadcast_warn",
    "torch._C._get_backcompat_keepdim_warn",
    "torch._C._dispatch_dump",
    "torch._C._dispatch_dump_table",
    "torch._C._dispatch_key_set",
    "torch._C._dispatch_tls_local_exclude_set",
    "torch._C._dispatch_tls_local_include_set",
    "torch.cuda.random.initial_seed",
    "torch.xpu.random.initial_seed",
}


def names() -> Iterator[str]:
    """All that the tables of both compilers put in the graph."""
    listed = tomllib.loads((Path(__file__).parent / "incumbent.toml").read_text())["objects"]
    for table in listed:
        before = f"{table['prefix']}." if "prefix" in table else ""
        yield from (before + name for name in table["names"].splitlines())
    for own in load.rules():
        yield from own.names


def run_while_tracing() -> Iterator[tuple[str, Any, Answer]]:
    """Functions of torch that are in the graph by a rule, without a handler: they are called on fakes."""
    tables = plugins.manager().tables()
    for name in sorted(set(names())):
        found = find_loaded(name)
        if found is MISSING or isinstance(found, type) or tables.handler(found) or tables.polyfill(found):
            continue
        verdict = tables.rule_book.verdict(found)
        if name.startswith("torch") and verdict.decision is Decision.IN_GRAPH:
            yield name, found, verdict.answer


def is_operator(fn: Any) -> bool:
    """Whether it is a binding of an operator: on fakes, the dispatcher runs no kernel."""
    return isinstance(fn, DESCRIPTORS) or id(fn) in OPERATORS or id(fn) in derived.overridable()


def test_of_each_function_that_runs_while_tracing_it_is_known_what_it_depends_on() -> None:
    functions = list(run_while_tracing())
    assert len(functions) > 1_200
    assert [name for name, fn, answer in functions if answer is Answer.UNKNOWN and not is_operator(fn)] == []


def test_no_function_that_acts_by_its_name_runs_while_tracing() -> None:
    suspects = [
        name for name, fn, _ in run_while_tracing() if not is_operator(fn) and ACTS.search(name.rpartition(".")[2])
    ]
    assert set(suspects) - HARMLESS == set()


def call_of(fn: Callable[..., Any], *args: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def traced(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        fn(*args)
        return y * 2

    return traced


SETTINGS: dict[str, Callable[[], Any]] = {
    "torch._C._set_backcompat_keepdim_warn": torch._C._get_backcompat_keepdim_warn,
    "torch._C._set_nnpack_enabled": torch._C._get_nnpack_enabled,
    "torch._C._set_view_replay_enabled": torch._C._is_view_replay_enabled,
    "torch._C._debug_set_fusion_group_inlining": torch._C._debug_get_fusion_group_inlining,
    "torch.__future__.set_overwrite_module_params_on_conversion": (
        torch.__future__.get_overwrite_module_params_on_conversion
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_changes_at_its_time_and_each_time(name: str) -> None:
    change, get = find_loaded(name), SETTINGS[name]
    before = get()
    armature.reset()
    try:
        traced = call_of(change, not before)
        with pytest.raises(armature.errors.Unsupported, match=name.rpartition(".")[2]):
            armature.compile(traced, backend="eager", fullgraph=True)(X)
        assert get() == before, "it was changed while tracing"
        compiled = armature.compile(traced, backend="eager")
        for _ in range(2):
            change(before)
            assert torch.equal(compiled(X), X * 4)
            assert get() == (not before)
    finally:
        change(before)


def test_a_function_of_which_nothing_is_told_is_not_run_while_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def made(size: int) -> torch.Tensor:
        calls.append(size)
        return torch.ones(size)

    made.__module__ = "torch.made_up"
    own = types.SimpleNamespace()
    own.armature_rules = hookimpl(rows(Rule(made, Decision.IN_GRAPH, "it gives a tensor")))
    armature.reset()
    with plugins.manager().registered(own, "own"):
        compiled = armature.compile(call_of(made, 2), backend="eager", fullgraph=True)
        with pytest.raises(armature.errors.Unsupported, match="made is called without a tensor"):
            compiled(X)
    assert calls == []


def test_an_event_of_the_log_does_not_break() -> None:
    armature.reset()
    traced = call_of(torch._C._log_api_usage_once, "armature.tests")
    assert torch.equal(armature.compile(traced, backend="eager", fullgraph=True)(X), X * 4)
