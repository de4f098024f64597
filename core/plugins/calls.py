"""A plugin as the manager and the tables see it: its identity, its hooks, and how to call them safely."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from itertools import dropwhile, takewhile
from pathlib import Path
from types import FunctionType
from typing import Any

import attrs
from packaging.utils import canonicalize_name

from armature.errors import HookFailed, InvalidRow, PluginError
from armature.introspection import layers
from armature.rules.data import RuleOrigin

UNKNOWN = "unknown"
OWN_FOLDER = str(Path(__file__).parents[1])


@attrs.frozen
class Plugin:
    """A loaded plugin. `precedence`: larger goes first and wins between rows of equal priority.

    hooks: names of the hooks that it implements correctly. place: file of the module or class, "" if not known.
    """

    name: str
    distribution: str
    version: str
    hooks: tuple[str, ...] = ()
    priority: int = 0
    place: str = ""

    @property
    def title(self) -> str:
        """Its name in provenance: the distribution if there is one, else the name it was registered by."""
        return self.name if self.distribution == UNKNOWN else self.distribution

    def called(self, names: Iterable[str]) -> bool:
        """Whether one of the names is the plugin's or its distribution's."""
        own = {canonicalize_name(self.name), canonicalize_name(self.distribution)}
        return any(canonicalize_name(name) in own for name in names)

    @property
    def facts(self) -> dict[str, str]:
        """The facts of every PluginError about it."""
        return {"plugin": self.name, "distribution": self.distribution, "version": self.version}


@attrs.frozen(eq=False)
class Implementation:
    """One hook of one plugin. `rank`: from ARMATURE_PLUGIN_ORDER, larger first, 0 without one."""

    plugin: Plugin
    hook: str
    function: Callable[..., Any]
    argnames: tuple[str, ...] = ()
    rank: int = 0

    @property
    def origin(self) -> RuleOrigin:
        """The location of the hook's function."""
        return origin_of(self.plugin, self.function)

    def precedence(self, priority: int) -> tuple[int, int, int]:
        """Decides between rows for one key: the row's own priority, the user's order, the plugin's priority."""
        return (priority, self.rank, self.plugin.priority)


@attrs.frozen
class Problem:
    """A plugin's fault that armature works around. `error` has the whole message, with a hint."""

    plugin: str
    distribution: str
    version: str
    hook: str
    error: PluginError

    @property
    def code(self) -> str:
        """The stable code of the error, "A105"."""
        return self.error.code

    @classmethod
    def of(cls, error: PluginError) -> Problem:
        """The problem that an error reports."""
        facts = {name: str(error.facts.get(name, "")) for name in ("plugin", "distribution", "version", "hook")}
        return cls(error=error, **facts)


def origin_of(plugin: Plugin, function: object) -> RuleOrigin:
    """The file and line of a Python function; only the plugin's name for anything else."""
    inner = list(layers(function))[-1]
    code = inner.__code__ if isinstance(inner, FunctionType) else None
    if code is None:
        return RuleOrigin(plugin.title, plugin.place)
    return RuleOrigin(plugin.title, code.co_filename, code.co_firstlineno)


def failed(impl: Implementation, error: Exception) -> HookFailed:
    """The error for an exception inside a hook, with the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    # Rows are checked in armature's own frames, which don't show where the row is defined; the plugin's frame above
    # does.
    theirs = list(takewhile(lambda frame: not _is_own(frame), dropwhile(_is_own, frames))) or frames
    place = f"{theirs[-1].filename}:{theirs[-1].lineno}" if theirs else impl.plugin.place
    problem = f"{type(error).__name__}: {error}"
    return HookFailed(hook=impl.hook, problem=problem, place=place, **impl.plugin.facts)


def _is_own(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith((f"{OWN_FOLDER}/", "<attrs "))


def call(impl: Implementation, **facts: object) -> Any:
    """Call a hook with those of the arguments that it declares. Raises HookFailed for its errors, and
    RecursionError."""
    try:
        return impl.function(*[facts[name] for name in impl.argnames])
    except RecursionError:  # a deep stack is not the plugin's fault
        raise
    except Exception as error:
        raise failed(impl, error) from error


def rows_of(impl: Implementation) -> list[Any]:
    """The rows that a hook returns; a generator is exhausted. Raises HookFailed and InvalidRow."""
    result = call(impl)
    if result is None:
        return []
    if not isinstance(result, Iterable):
        raise invalid(impl, result, "it is not iterable")
    try:
        return list(result.items() if isinstance(result, Mapping) else result)
    except Exception as error:
        raise failed(impl, error) from error


def invalid(impl: Implementation, row: object, problem: str) -> InvalidRow:
    """The error for an invalid row."""
    return InvalidRow(hook=impl.hook, row=f"{row!r:.200}", problem=problem, **impl.plugin.facts)
