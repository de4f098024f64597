"""The conformance kit finds what it is meant to find, and is content with what is sound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from armature import testing
from armature.plugin_api import (
    BreakType,
    Decision,
    Decomposition,
    Handler,
    Lowering,
    Pass,
    Polyfill,
    Rule,
    hookimpl,
)
from armature.testing import PluginConformance, plugin_kit
from armature.testing.plugin_kit import (
    check_entry_point,
    check_hooks_are_documented,
    check_hooks_are_marked,
    check_hooks_repeat,
    check_loads_alone,
    check_rows,
    check_rules_match,
)

OP = torch.ops.aten.hardtanh.default


class Sound:
    """Nothing is wrong with it."""

    @hookimpl
    def armature_rules(self) -> list[Rule]:
        """Which functions are skipped."""
        return [Rule("json.dumps", Decision.SKIP, "text")]

    @hookimpl
    def armature_polyfills(self) -> list[Polyfill]:
        """Stand-ins."""
        return [Polyfill(math.hypot, lambda *xs: math.sqrt(sum(x * x for x in xs)))]


class TestSoundPlugin(PluginConformance):
    plugin = Sound()


def giving(hook: str, rows: Any) -> object:
    """A plugin that gives these rows."""

    def give() -> Any:
        """Rows."""
        return rows() if callable(rows) else rows

    return SimpleNamespace(**{f"armature_{hook}": hookimpl(give)})


def nothing() -> None:
    return None


def many(*args: Any) -> None:
    return None


WRONG_ROWS: dict[str, tuple[str, list[Any], str]] = {
    "handler without call": ("handlers", [Handler((len,), nothing)], "does not take the call"),
    "polyfill in C": ("polyfills", [Polyfill(math.sqrt, math.fabs)], "not a Python function"),
    "polyfill that takes less": ("polyfills", [Polyfill(math.pow, lambda x: x)], "fewer arguments"),
    "break type with a bad id": ("break_types", [BreakType("My IO", "IO", "It reads.", ("Do not.",))], "lower-case"),
    "break type with a bad template": ("break_types", [BreakType("io", "IO", "It {reads.", ("Do not.",))], "template"),
    "break type with a nameless fact": ("break_types", [BreakType("io", "IO", "It {}.", ("Do not.",))], "named"),
    "decomposition that takes less": ("decompositions", [Decomposition(OP, nothing)], "1 arguments"),
    "lowering without builder": ("lowerings", [Lowering(OP, lambda x: None)], "builder"),
    "pass without context": ("passes", [Pass("p", "joint", lambda x: x)], "the context"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("hook", "rows", "said"), WRONG_ROWS.values(), ids=WRONG_ROWS)
def test_wrong_rows_are_found(hook: str, rows: list[Any], said: str) -> None:
    (fault,) = check_rows(giving(hook, rows))
    assert said in fault


@pytest.mark.parametrize(
    ("hook", "row", "said"),
    [
        ("rules", "json", "expected Rule"),
        ("handlers", Handler((3,), many), "target"),
        ("passes", None, "expected Pass"),
    ],
)
def test_rows_the_tables_refuse_are_found(hook: str, row: object, said: str) -> None:
    (fault,) = check_loads_alone(giving(hook, [row]))
    assert said in fault


def test_a_forgotten_mark_is_found() -> None:
    plugin = SimpleNamespace(armature_rules=lambda: [])
    assert check_hooks_are_marked(plugin) == ["armature_rules lacks @hookimpl, so it is never called"]


def test_a_hook_without_docstring_is_found() -> None:
    plugin = SimpleNamespace(armature_rules=hookimpl(lambda: []))
    assert check_hooks_are_documented(plugin) == ["armature_rules has no docstring"]


def test_a_hook_that_gives_its_rows_only_once_is_found() -> None:
    once: Iterator[Rule] = iter([Rule("json", Decision.SKIP, "text")])
    assert check_hooks_repeat(giving("rules", lambda: once)) == ["rules: 1 rows, then 0"]


def test_a_rule_for_nothing_is_found() -> None:
    (fault,) = check_rules_match(giving("rules", [Rule("json.dumpz", Decision.SKIP, "text")]))
    assert "json.dumpz" in fault


def test_the_entry_point_is_looked_at() -> None:
    (fault,) = check_entry_point(Sound(), "armature-builtin-rules")
    assert "armature_builtin_rules.plugin" in fault


def checks() -> list[Callable[..., list[str]]]:
    return [function for name, function in vars(plugin_kit).items() if name.startswith("check_")]


def test_every_check_is_a_test_of_the_class() -> None:
    tests = {name for name in vars(PluginConformance) if name.startswith("test_")}
    assert {function.__name__.replace("check_", "test_") for function in checks()} <= tests


@pytest.mark.parametrize("name", testing.__all__)
def test_kits_are_exported(name: str) -> None:
    assert getattr(testing, name).__name__ == name


def test_what_is_no_kit_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="NoSuchKit"):
        _ = testing.NoSuchKit
