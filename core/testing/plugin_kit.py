"""The conformance kit for any plugin: the findings of `armature plugins doctor` and of reviewers, as tests.

    from armature.testing import PluginConformance
    from armature_mylib import plugin

    class TestConformance(PluginConformance):
        plugin = plugin

Each `check_...` function can be used alone: it returns the faults as lines of text.
"""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any, ClassVar

from armature import config
from armature.breaks.types import BreakType
from armature.graph.data import Decomposition, Lowering, Pass
from armature.plugins.hook_check import hook_specs, marked
from armature.plugins.plugin_manager import GROUP, PluginManager
from armature.plugins.registry import name_of
from armature.plugins.tables import Tables
from armature.trace.handlers import Handler, Polyfill

NAME = "under-test"
POSITIONAL = frozenset(
    {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
)


def alone(plugin: object) -> PluginManager:
    """A manager with this plugin and no other; nothing is discovered."""
    manager = PluginManager(find=lambda: ())
    manager.register(plugin, NAME)
    return manager


def tables_alone(plugin: object) -> Tables:
    """The tables of this plugin alone, without broken rows."""
    with config.patch(strict=False):
        return alone(plugin).tables()


def check_loads_alone(plugin: object) -> list[str]:
    """The plugin loads without other plugins, and every row of it is accepted."""
    return [str(problem.error) for problem in alone(plugin).problems]


def check_hooks_are_marked(plugin: object) -> list[str]:
    """Every function with a hook's name has `@hookimpl`: otherwise it would never be called."""
    named = {name for name, _ in marked(plugin)}
    forgotten = [name for name in hook_specs() if inspect.isroutine(getattr(plugin, name, None)) and name not in named]
    return [f"{name} lacks @hookimpl, so it is never called" for name in forgotten]


def check_hooks_are_documented(plugin: object) -> list[str]:
    """Each implemented hook has a docstring that says what it returns."""
    return [f"{name} has no docstring" for name, function in marked(plugin) if not inspect.getdoc(function)]


def check_hooks_repeat(plugin: object) -> list[str]:
    """Row hooks return the same number of rows when called again, as happens when another plugin is added."""
    first, second = (tables_alone(plugin).registries.by_name() for _ in range(2))
    counts = {name: (len(list(first[name].all_rows())), len(list(second[name].all_rows()))) for name in first}
    return [f"{name}: {one} rows, then {two}" for name, (one, two) in counts.items() if one != two]


def check_rows(plugin: object) -> list[str]:
    """Each row is valid for its kind, beyond what the tables require."""
    registries = tables_alone(plugin).registries.by_name()
    rows = [row.value for registry in registries.values() for row in registry.all_rows()]
    checks: dict[type, Callable[[Any], Iterator[str]]] = {
        Handler: faults_of_handler,
        Polyfill: faults_of_polyfill,
        BreakType: faults_of_break_type,
        Decomposition: faults_of_decomposition,
        Lowering: faults_of_lowering,
        Pass: faults_of_pass,
    }
    return [fault for row in rows if type(row) in checks for fault in checks[type(row)](row)]


def check_rules_match(plugin: object) -> list[str]:
    """Each rule names something that exists in the installed versions."""
    return [f"{missing.rule.target}: {missing.why}" for missing in tables_alone(plugin).rule_book.missing()]


def positional(function: Callable[..., object]) -> list[inspect.Parameter] | None:
    """The parameters that may be passed by position; None if there is no signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return [parameter for parameter in parameters if parameter.kind in kinds]


def lacks_positions(function: Callable[..., object], count: int) -> bool:
    """Whether a function certainly can't be called with this many positional arguments."""
    found = positional(function)
    if found is None or any(p.kind is p.VAR_POSITIONAL for p in found):
        return False
    return len(found) < count


def faults_of_handler(row: Handler) -> Iterator[str]:
    """A handler takes the call as its first argument."""
    if lacks_positions(row.fn, 1):
        yield f"handler {name_of(row.fn)} does not take the call as its first argument"


def faults_of_polyfill(row: Polyfill) -> Iterator[str]:
    """A polyfill is a Python function with the original's parameters."""
    if not inspect.isfunction(row.replacement):
        yield f"the polyfill of {name_of(row.original)} is not a Python function"
    wanted, given = positional(row.original), positional(row.replacement)
    if wanted and given is not None and lacks_positions(row.replacement, len(wanted)):
        yield f"the polyfill of {name_of(row.original)} takes fewer arguments than the original"


def faults_of_break_type(row: BreakType) -> Iterator[str]:
    """A break type's id is a slug, and its explanation a template with named facts."""
    if not row.id.replace("-", "").isalnum() or row.id != row.id.lower():
        yield f"break type {row.id!r}: an id is lower-case words joined by -"
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(row.explanation) if field is not None]
    except ValueError as error:
        yield f"break type {row.id}: the explanation is not a template: {error}"
        return
    if any(not field.isidentifier() for field in fields):
        yield f"break type {row.id}: facts in the explanation must be named, as in {{call}}"


def faults_of_decomposition(row: Decomposition) -> Iterator[str]:
    """A decomposition has its operator's parameters."""
    needed = [a for a in row.op._schema.arguments if not a.kwarg_only and not a.has_default_value()]
    if lacks_positions(row.fn, len(needed)):
        yield f"the decomposition of {row.op} takes fewer than the {len(needed)} arguments of the operator"


def faults_of_lowering(row: Lowering) -> Iterator[str]:
    """A lowering takes the builder, then its operator's arguments."""
    needed = [a for a in row.op._schema.arguments if not a.kwarg_only and not a.has_default_value()]
    if lacks_positions(row.fn, len(needed) + 1):
        yield f"the lowering of {row.op} does not take the builder and the operator's {len(needed)} arguments"


def faults_of_pass(row: Pass) -> Iterator[str]:
    """A pass takes its subject and the context."""
    if lacks_positions(row.run, 2):
        yield f"pass {row.name} does not take the program and the context"


def check_entry_point(plugin: object, distribution: str) -> list[str]:
    """The distribution is installed and declares this plugin in group `armature`."""
    entries = metadata.distribution(distribution).entry_points.select(group=GROUP)
    if any(entry.load() is plugin for entry in entries):
        return []
    return [f"{distribution} declares {[entry.value for entry in entries]} in group {GROUP}, not this plugin"]


class PluginConformance:
    """Subclass it in a test file and set `plugin`, and `distribution` to check the entry point too.

    rules_may_miss: set it if the plugin has rules for libraries that need not be installed.
    """

    plugin: ClassVar[object]
    distribution: ClassVar[str] = ""
    rules_may_miss: ClassVar[bool] = False

    def test_loads_alone(self) -> None:
        """The plugin loads without other plugins, and all its rows are accepted."""
        assert check_loads_alone(self.plugin) == []

    def test_implements_something(self) -> None:
        """The plugin has at least one hook."""
        assert list(marked(self.plugin)), "no function bears @hookimpl"

    def test_hooks_are_marked(self) -> None:
        """No hook is forgotten."""
        assert check_hooks_are_marked(self.plugin) == []

    def test_hooks_are_documented(self) -> None:
        """Each hook has a docstring."""
        assert check_hooks_are_documented(self.plugin) == []

    def test_hooks_repeat(self) -> None:
        """Row hooks keep no state."""
        assert check_hooks_repeat(self.plugin) == []

    def test_rows(self) -> None:
        """Rows are valid for their kind."""
        assert check_rows(self.plugin) == []

    def test_rules_match(self) -> None:
        """Rules name things that exist."""
        assert self.rules_may_miss or check_rules_match(self.plugin) == []

    def test_entry_point(self) -> None:
        """The distribution declares the plugin."""
        assert not self.distribution or check_entry_point(self.plugin, self.distribution) == []
