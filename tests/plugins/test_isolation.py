"""A broken plugin is named, with its distribution, version and hook, and everything else works on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from armature import config
from armature.errors import (
    HookFailed,
    InvalidRow,
    PluginError,
    PluginImportFailed,
    PluginVersionMismatch,
    UnknownHook,
    WrongHookSignature,
)
from armature.events import CompileEvent, EventKind
from armature.introspection import Subject
from armature.plugin_api import Decision, Rule, ValueType, hookimpl
from armature.plugins import PluginManager
from armature.plugins.calls import Problem
from armature.plugins.plugin_manager import Candidate

pytestmark = pytest.mark.usefixtures("lenient")
EVENT = CompileEvent(EventKind.START, 0, "f", "f.py", 1)


class Sound:
    """A plugin that works, to stand next to the broken ones."""

    @hookimpl
    def armature_rules(self) -> list[Rule]:
        return [Rule("json", Decision.SKIP, "text, not tensors")]


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on sys.path to write plugin modules in; they are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def candidate(name: str, *requirements: str) -> Candidate:
    entry = metadata.EntryPoint(name, f"{name}_module", "armature")
    return Candidate(entry, f"armature-{name}", "1.2", requirements)


def managed(folder: Path, name: str, text: str, *requirements: str) -> PluginManager:
    """A manager that finds a plugin with this text, and a sound one."""
    (folder / f"{name}_module.py").write_text(text)
    manager = PluginManager(find=lambda: [candidate(name, *requirements)])
    manager.register(Sound(), "sound")
    return manager


def only_problem(manager: PluginManager, kind: type[PluginError]) -> Problem:
    """The one problem there is; the sound plugin works whatever it is."""
    assert [rule.target for rule, _ in manager.tables().rules][-1] == "json"
    (problem,) = manager.problems
    assert type(problem.error) is kind
    assert problem.error.hint
    assert problem.plugin in str(problem.error)
    return problem


BROKEN_MODULES = {
    "failing import": ("import no_such_module_at_all\n", PluginImportFailed, "", "no_such_module_at_all"),
    "exception on import": ("1 / 0\n", PluginImportFailed, "", "ZeroDivisionError"),
    "exit on import": ("raise SystemExit(3)\n", PluginImportFailed, "", "SystemExit"),
    "syntax error": ("def f(:\n", PluginImportFailed, "", "SyntaxError"),
    "another major version": ("ARMATURE_API_VERSION = (2, 0)\n", PluginVersionMismatch, "", "plugin API 2.0"),
    "a newer minor version": ("ARMATURE_API_VERSION = (1, 99)\n", PluginVersionMismatch, "", "plugin API 1.99"),
    "a version that is none": ("ARMATURE_API_VERSION = 'new'\n", PluginVersionMismatch, "", "'new'"),
    "an unknown hook": (
        "from armature.plugin_api import hookimpl\n@hookimpl\ndef armature_rule(): ...\n",
        UnknownHook,
        "armature_rule",
        "armature_rules",
    ),
    "a wrong signature": (
        "from armature.plugin_api import hookimpl\n@hookimpl\ndef armature_decide(thing): ...\n",
        WrongHookSignature,
        "armature_decide",
        "armature_decide(subject)",
    ),
    "a required keyword": (
        "from armature.plugin_api import hookimpl\n@hookimpl\ndef armature_rules(*, more): ...\n",
        WrongHookSignature,
        "armature_rules",
        "armature_rules()",
    ),
    "a wrapper": (
        "from armature.plugin_api import hookimpl\n@hookimpl(wrapper=True)\ndef armature_rules():\n    yield\n",
        PluginError,
        "armature_rules",
        "wrapper",
    ),
    "a coroutine": (
        "from armature.plugin_api import hookimpl\n@hookimpl\nasync def armature_rules(): ...\n",
        PluginError,
        "armature_rules",
        "coroutine",
    ),
    "a hook that raises": (
        "from armature.plugin_api import hookimpl\n@hookimpl\ndef armature_rules():\n    return [][1]\n",
        HookFailed,
        "armature_rules",
        "broken_module.py:4",
    ),
    "a generator that raises": (
        "from armature.plugin_api import hookimpl\n@hookimpl\ndef armature_rules():\n    yield from ()\n    1 / 0\n",
        HookFailed,
        "armature_rules",
        "broken_module.py:5",
    ),
    "rows that are none": (
        "from armature.plugin_api import hookimpl\n@hookimpl\ndef armature_rules():\n    return ['json']\n",
        InvalidRow,
        "armature_rules",
        "expected Rule",
    ),
    "no rows at all": (
        "from armature.plugin_api import hookimpl\n@hookimpl\ndef armature_rules():\n    return 7\n",
        InvalidRow,
        "armature_rules",
        "not iterable",
    ),
}


@pytest.mark.parametrize(("text", "kind", "hook", "said"), BROKEN_MODULES.values(), ids=BROKEN_MODULES)
def test_a_broken_module_is_named(modules: Path, text: str, kind: type[PluginError], hook: str, said: str) -> None:
    problem = only_problem(managed(modules, "broken", text), kind)
    assert (problem.plugin, problem.distribution, problem.version) == ("broken", "armature-broken", "1.2")
    assert problem.hook == hook
    assert said in str(problem.error)
    assert problem.code.startswith("A1")


@pytest.mark.parametrize(("text", "kind", "hook", "said"), BROKEN_MODULES.values(), ids=BROKEN_MODULES)
def test_strict_raises(modules: Path, text: str, kind: type[PluginError], hook: str, said: str) -> None:
    with config.patch(strict=True), pytest.raises(kind) as caught:
        managed(modules, "broken", text).tables()
    assert said in str(caught.value)


def test_a_disabled_plugin_is_not_imported(modules: Path) -> None:
    manager = managed(modules, "broken", "1 / 0\n")
    with config.patch(disabled_plugins={"armature_broken"}):
        assert manager.problems == ()
        assert [plugin.name for plugin in manager.disabled] == ["broken"]
    assert len(manager.problems) == 1
    with config.patch(disabled_plugins={"broken"}):
        assert manager.problems == ()


def test_a_requirement_that_this_armature_does_not_meet(modules: Path) -> None:
    manager = managed(modules, "broken", "1 / 0\n", "torch-armature>=99")
    problem = only_problem(manager, PluginVersionMismatch)
    assert "torch-armature>=99" in str(problem.error)


def test_requirements_that_are_met_or_not_ours_are_no_problem(modules: Path) -> None:
    manager = managed(modules, "fine", "", "torch-armature>=0.1", "numpy>=99", "not a requirement", "attrs")
    assert manager.problems == ()


def test_sound_hooks_of_a_broken_plugin_work(modules: Path) -> None:
    text = """
from armature.plugin_api import Decision, Rule, hookimpl

@hookimpl
def armature_rules():
    return ["nonsense", Rule("csv", Decision.SKIP, "text")]

@hookimpl
def armature_handlers():
    raise RuntimeError("no handlers today")

@hookimpl
def armature_unheard_of():
    pass
"""
    manager = managed(modules, "half", text)
    assert {rule.target for rule, _ in manager.tables().rules} == {"csv", "json"}
    assert {problem.hook for problem in manager.problems} == {
        "armature_rules",
        "armature_handlers",
        "armature_unheard_of",
    }


def test_deciders_that_fail_have_no_opinion(manager: PluginManager) -> None:
    class Raises:
        @hookimpl
        def armature_decide(self, subject: Subject) -> None:
            raise KeyError(subject.module)

    class Mumbles:
        @hookimpl
        def armature_decide(self, subject: Subject) -> str:
            return "skip"

    manager.register(Raises(), "raises")
    manager.register(Mumbles(), "mumbles")
    tables = manager.tables()
    assert tables.decide(Subject(len, "builtins", "len")) is None
    assert {(p.plugin, type(p.error)) for p in manager.problems} == {("raises", HookFailed), ("mumbles", InvalidRow)}
    tables.decide(Subject(len, "builtins", "len"))
    assert len(manager.problems) == 2, "one problem per plugin and hook, however often it is asked"


def test_observers_that_fail_do_not_stop_others(manager: PluginManager) -> None:
    seen: list[CompileEvent] = []

    class Raises:
        @hookimpl
        def armature_compile_event(self, event: CompileEvent) -> None:
            raise ValueError("not now")

    class Watches:
        @hookimpl
        def armature_compile_event(self, event: CompileEvent) -> None:
            seen.append(event)

    manager.register(Raises(), "a-raises")
    manager.register(Watches(), "b-watches")
    manager.tables().observe_compile(EVENT)
    assert seen == [EVENT]
    assert [p.plugin for p in manager.problems] == ["a-raises"]
    with config.patch(strict=True), pytest.raises(HookFailed, match="not now"):
        manager._built(config.current()).tables.observe_compile(EVENT)


def test_a_stack_that_is_full_is_no_fault_of_a_plugin(manager: PluginManager) -> None:
    class Asked:
        @hookimpl
        def armature_decide(self, subject: Subject) -> None:
            raise RecursionError

        @hookimpl
        def armature_compile_event(self, event: CompileEvent) -> None:
            raise RecursionError

    manager.register(Asked(), "asked")
    with pytest.raises(RecursionError):
        manager.tables().decide(Subject(len, "builtins", "len"))
    assert not manager.problems
    manager.tables().observe_compile(EVENT)
    assert [(p.plugin, p.hook) for p in manager.problems] == [("asked", "armature_compile_event")]


def test_a_predicate_that_fails_does_not_hold(manager: PluginManager) -> None:
    class Mine:
        @hookimpl
        def armature_value_types(self) -> list[ValueType]:
            return [ValueType(lambda obj: obj.no_such_attribute, lambda obj, source, tracer: None)]  # type: ignore

    manager.register(Mine(), "mine")
    assert list(manager.tables().value_types(object())) == []
    assert [p.hook for p in manager.problems] == ["armature_value_types"]


def test_a_back_end_that_fails_leaves_the_device_to_others(manager: PluginManager) -> None:
    backend = SimpleNamespace(name="works")

    class Raises:
        @hookimpl
        def armature_device_backend(self, device_type: str) -> None:
            raise torch.cuda.OutOfMemoryError("no room")

    class Works:
        @hookimpl
        def armature_device_backend(self, device_type: str) -> object:
            return backend

    manager.register(Raises(), "a-raises")
    manager.register(Works(), "b-works")
    assert manager.tables().device_backend("mydev") is backend
    assert [p.plugin for p in manager.problems] == ["a-raises"]
