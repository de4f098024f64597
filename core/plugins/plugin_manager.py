"""The plugin manager: finds plugins by their entry points, leaves out broken ones, and builds the tables.

A plugin is a module (or any object) with functions marked by `@hookimpl`. It may set `ARMATURE_API_VERSION` to the
plugin API that it is written for, (1, 0), and `ARMATURE_PRIORITY`, 5, to win over equal rows of others.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import attrs
import pluggy
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from armature import config, hookspecs
from armature.config import PASS_SETTINGS, PLUGIN_SETTINGS, Config
from armature.errors import (
    DuplicatePlugin,
    PluginError,
    PluginImportFailed,
    PluginVersionMismatch,
    UnknownPass,
    UnknownPlugin,
    did_you_mean,
)
from armature.plugins.calls import UNKNOWN, Implementation, Plugin, Problem
from armature.plugins.hook_check import as_plugin, hook_specs, sound_hooks
from armature.plugins.tables import Tables, build
from armature.rules.data import Rule
from armature.rules.project import project_rules
from armature.rules.user import USER, UserRules

GROUP = "armature"
CORE = "torch-armature"
T = TypeVar("T")


@attrs.frozen
class Candidate:
    """A plugin that is installed, not imported yet."""

    entry: metadata.EntryPoint
    distribution: str
    version: str
    requirements: tuple[str, ...] = ()

    @property
    def plugin(self) -> Plugin:
        """Its description before it is imported."""
        return Plugin(self.entry.name, self.distribution, self.version)


def installed() -> list[Candidate]:
    """The plugins of this environment, by name. A distribution found twice on sys.path counts once."""
    found: dict[tuple[str, str, str], Candidate] = {}
    for entry in metadata.entry_points(group=GROUP):
        name = entry.dist.name if entry.dist else UNKNOWN
        version = entry.dist.version if entry.dist else UNKNOWN
        requirements = tuple(entry.dist.requires or ()) if entry.dist else ()
        found.setdefault((entry.name, entry.value, name), Candidate(entry, name, version, requirements))
    return [found[key] for key in sorted(found)]


def core_version() -> str:
    """The installed version of armature, "" if it runs from source without being installed."""
    try:
        return metadata.version(CORE)
    except metadata.PackageNotFoundError:
        return ""


def check_requirement(candidate: Candidate, version: str) -> None:
    """Raise PluginVersionMismatch if the distribution requires another version of armature."""
    for text in candidate.requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        named = canonicalize_name(requirement.name) == CORE and not requirement.marker
        if named and version and not requirement.specifier.contains(version, prereleases=True):
            wanted = f"{CORE}{requirement.specifier}"
            raise PluginVersionMismatch(wanted=wanted, have=f"{CORE} {version}", hook="", **candidate.plugin.facts)


def check_api(obj: object, plugin: Plugin) -> None:
    """Raise PluginVersionMismatch if the plugin needs another, or a newer, plugin API."""
    wanted = getattr(obj, "ARMATURE_API_VERSION", hookspecs.API_VERSION)
    fits = isinstance(wanted, tuple) and len(wanted) == 2 and all(isinstance(part, int) for part in wanted)
    if not fits or wanted[0] != hookspecs.API_VERSION[0] or wanted[1] > hookspecs.API_VERSION[1]:
        have = f"plugin API {'.'.join(map(str, hookspecs.API_VERSION))}"
        said = ".".join(map(str, wanted)) if fits else repr(wanted)
        raise PluginVersionMismatch(wanted=f"plugin API {said}", have=have, hook="", **plugin.facts)


def place_of(obj: object) -> str:
    """The file a plugin object comes from, "" if not known."""
    try:
        return inspect.getsourcefile(obj if inspect.ismodule(obj) else type(obj)) or ""
    except (TypeError, OSError):
        return ""


PluginChoice: TypeAlias = tuple[frozenset[str], tuple[str, ...]]  # excluded plugins, and the order of those named


@attrs.frozen(eq=False)
class BuiltTables:
    """Tables for a choice of plugins, and the problems found while they were built."""

    tables: Tables
    faults: list[PluginError]


@attrs.define(eq=False)
class PluginManager:
    """Installed and registered plugins, their problems, and the tables of their rows.

    find: returns the installed plugins; called once, on first use. Nothing is imported before that.
    """

    find: Callable[[], Sequence[Candidate]] = installed
    _pluggy: pluggy.PluginManager = attrs.field(factory=lambda: pluggy.PluginManager(hookspecs.PROJECT))
    _candidates: tuple[Candidate, ...] | None = None
    _loaded: dict[str, Plugin] = attrs.field(factory=dict)
    _faults: dict[str, list[PluginError]] = attrs.field(factory=dict)  # of loading, by plugin
    _late_faults: dict[tuple[str, str], PluginError] = attrs.field(factory=dict)  # by plugin and hook
    _revision: int = 0
    _tables: dict[PluginChoice, BuiltTables] = attrs.field(factory=dict)  # by the choice of plugins in the settings
    _tables_revision: int = -1  # the revision for which they were built
    _epoch: int = 0
    _user: UserRules | None = None
    _lock: threading.RLock = attrs.field(factory=threading.RLock)

    def __attrs_post_init__(self) -> None:
        self._pluggy.add_hookspecs(hookspecs)

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """The enabled plugins, in the order in which they are asked."""
        return self._built(config.current()).tables.plugins

    @property
    def disabled(self) -> tuple[Plugin, ...]:
        """Installed plugins that the settings exclude; they are not imported."""
        names = config.current().disabled_plugins
        return tuple(candidate.plugin for candidate in self._installed() if candidate.plugin.called(names))

    def check_names(self, names: Iterable[str]) -> None:
        """Raise UnknownPlugin for a name that is neither a plugin's nor its distribution's. Imports nothing."""
        with self._lock:
            known = [*(candidate.plugin for candidate in self._installed()), *self._loaded.values()]
        called = sorted({USER, *self._faults, *(plugin.name for plugin in known)})
        for name in names:
            if name not in called and not any(plugin.called([name]) for plugin in known):
                raise UnknownPlugin(name=name, nearest=did_you_mean(name, called), known=", ".join(called))

    def check_passes(self, names: Collection[str], settings: Config) -> None:
        """Raise UnknownPass for a name that no pass has. Excluded plugins are not imported to find their passes: while
        there are some, any name is accepted."""
        if not names or any(candidate.plugin.called(settings.disabled_plugins) for candidate in self._installed()):
            return
        known = sorted(map(str, self.tables(settings).registries.passes.rows))
        for name in sorted(set(names).difference(known)):
            raise UnknownPass(name=name, nearest=did_you_mean(name, known), known=", ".join(known))

    def check_settings(self, settings: Config, given: Iterable[str]) -> None:
        """Check the names of plugins and passes in the given settings. Raises UnknownPlugin, UnknownPass."""
        for setting in sorted(PLUGIN_SETTINGS.intersection(given)):
            self.check_names(getattr(settings, setting))
        for setting in sorted(PASS_SETTINGS.intersection(given)):
            self.check_passes(getattr(settings, setting), settings)

    @property
    def user(self) -> UserRules:
        """The user's rules from calls and pyproject.toml: a plugin like any other, created on first use."""
        with self._lock:
            if self._user is None:
                self._user = UserRules(self._changed)
                self.register(self._user, USER)
            return self._user

    def user_rules(self) -> tuple[Rule, ...]:
        """The user's rules, from calls and pyproject.toml."""
        return tuple(self._user.armature_rules()) if self._user is not None else ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems of the plugins. Raises nothing, not even in strict mode."""
        return self._problems(config.current())

    def _problems(self, settings: Config) -> tuple[Problem, ...]:
        built = self._built(settings)
        loading = [error for errors in self._faults.values() for error in errors]
        found = [Problem.of(error) for error in (*loading, *built.faults, *self._late_faults.values())]
        disabled = settings.disabled_plugins
        return tuple(p for p in found if not Plugin(p.plugin, p.distribution, p.version).called(disabled))

    def tables(self, settings: Config | None = None) -> Tables:
        """The rows of the plugins that the settings (None: the current ones) enable; built once for each choice of
        plugins, and again when a plugin changes.

        Raises the first problem (a PluginError) in strict mode; otherwise continues without the broken parts.
        """
        settings = settings or config.current()
        tables = self._built(settings).tables
        if settings.strict and (problems := self._problems(settings)):
            first = problems[0].error
            raise first.fresh()
        return tables

    def register(self, plugin: object, name: str) -> Plugin:
        """Add a plugin object, as tests do. Its problems are recorded. Raises DuplicatePlugin."""
        with self._lock:
            made = Plugin(name, UNKNOWN, UNKNOWN, place=place_of(plugin))
            if name in self._loaded:
                raise DuplicatePlugin(held=self._loaded[name].title, hook="", **made.facts)
            self._guarded(made, partial(self._take, plugin, made))
            self._revision += 1
            return self._loaded.get(name, made)

    def unregister(self, name: str) -> None:
        """Remove a plugin, and its problems. Raises UnknownPlugin."""
        with self._lock:
            if name not in self._loaded and name not in self._faults:
                known = sorted(self._loaded)
                nearest = did_you_mean(name, known)
                raise UnknownPlugin(name=name, nearest=nearest, known=", ".join(known) or "none")
            if self._loaded.pop(name, None):
                self._pluggy.unregister(name=name)
            self._faults.pop(name, None)
            self._late_faults = {key: error for key, error in self._late_faults.items() if key[0] != name}
            self._revision += 1

    @contextmanager
    def registered(self, plugin: object, name: str) -> Iterator[Plugin]:
        """Register a plugin for the body of the `with`."""
        made = self.register(plugin, name)
        try:
            yield made
        finally:
            self.unregister(name)

    def _changed(self) -> None:
        with self._lock:
            self._revision += 1

    def record(self, error: PluginError) -> None:
        """Record a fault in a plugin's answer: the first of each plugin and hook."""
        self._late_faults.setdefault((str(error.facts["plugin"]), str(error.facts["hook"])), error)

    def implementations(self, hook: str, settings: Config | None = None) -> tuple[Implementation, ...]:
        """The implementations of a hook by enabled plugins, in the order in which they are asked."""
        settings = settings or config.current()
        with self._lock:
            self._load(settings.disabled_plugins)
        found = []
        for impl in getattr(self._pluggy.hook, hook).get_hookimpls():
            plugin = self._loaded[impl.plugin_name]
            if not plugin.called(settings.disabled_plugins):
                rank = self._rank(plugin, settings)
                made = Implementation(plugin, hook, impl.function, tuple(impl.argnames), rank)
                # tryfirst and trylast are pluggy's own terms for "before and after all others".
                found.append((impl.trylast - impl.tryfirst, self._precedence(plugin, settings), made))
        return tuple(row[-1] for row in sorted(found, key=lambda row: row[:-1]))

    @staticmethod
    def _rank(plugin: Plugin, settings: Config) -> int:
        order = settings.plugin_order
        return next((len(order) - at for at, name in enumerate(order) if plugin.called([name])), 0)

    def _precedence(self, plugin: Plugin, settings: Config) -> tuple[int, int, str]:
        return (-self._rank(plugin, settings), -plugin.priority, plugin.name)

    def _installed(self) -> tuple[Candidate, ...]:
        if self._candidates is None:
            self._candidates = tuple(self.find())
        return self._candidates

    def _built(self, settings: Config) -> BuiltTables:
        with self._lock:
            self._load(settings.disabled_plugins)
            if self._tables_revision != self._revision:
                self._tables.clear()
                self._tables_revision = self._revision
            asked = (settings.disabled_plugins, settings.plugin_order)
            if asked not in self._tables:
                hooks = {name: self.implementations(name, settings) for name in hook_specs()}
                active = [plugin for plugin in self._loaded.values() if not plugin.called(settings.disabled_plugins)]
                active.sort(key=lambda plugin: self._precedence(plugin, settings))
                self._epoch += 1
                faults: list[PluginError] = []
                tables = build(self._epoch, active, hooks, faults.append, self._report_late)
                self._tables[asked] = BuiltTables(tables, faults)
            return self._tables[asked]

    def _load(self, disabled: frozenset[str]) -> None:
        for candidate in self._installed():
            plugin = candidate.plugin
            tried = self._loaded.get(plugin.name, None) or self._faults.get(plugin.name)
            if not plugin.called(disabled) and not tried:
                self._guarded(plugin, partial(self._import, candidate))
                self._revision += 1
            elif isinstance(tried, Plugin) and tried.distribution != plugin.distribution:
                taken = DuplicatePlugin(held=tried.title, hook="", **plugin.facts)
                if not any(error.facts == taken.facts for error in self._faults.get(plugin.name, ())):
                    self._faults.setdefault(plugin.name, []).append(taken)

    def _import(self, candidate: Candidate) -> None:
        check_requirement(candidate, core_version())
        try:
            obj = candidate.entry.load()
        except (Exception, SystemExit) as error:
            problem = f"{type(error).__name__}: {error}"
            raise PluginImportFailed(hook="", problem=problem, **candidate.plugin.facts) from error
        self._take(obj, attrs.evolve(candidate.plugin, place=place_of(obj)))

    def _take(self, obj: object, plugin: Plugin) -> None:
        check_api(obj, plugin)
        hooks: Mapping[str, Any] = sound_hooks(obj, plugin, self._faults.setdefault(plugin.name, []).append)
        priority = getattr(obj, "ARMATURE_PRIORITY", 0)
        self._pluggy.register(as_plugin(hooks), name=plugin.name)
        self._loaded[plugin.name] = attrs.evolve(plugin, hooks=tuple(hooks), priority=int(priority))

    def _guarded(self, plugin: Plugin, step: Callable[[], None]) -> None:
        try:
            step()
        except PluginError as error:
            self._faults.setdefault(plugin.name, []).append(error)

    def _report_late(self, error: PluginError) -> None:
        self.record(error)
        if config.current().strict:
            raise error


@cache
def manager() -> PluginManager:
    """The manager of this process, with the rules of the project that it was started in. Raises BadProjectRule."""
    made = PluginManager()
    if rules := project_rules(working_folder()):
        made.user.project = rules
    return made


def working_folder() -> Path:
    """The folder that the process runs in; the root folder if it was deleted."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")
