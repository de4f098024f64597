"""Rules and verdicts: whether a callable goes in the graph, is traced into, or is left alone.

Only the classes and the precedence live here; the knowledge comes from plugins (`armature_rules`, `armature_decide`).

The order, first that matches: a rule for the very object; what a plugin computes (`armature_decide`); rules for its
module or a package above it, `inline` and `in_graph` before `skip`, nearer before farther; then the default, which is
to trace into Python functions. Within one step a larger `priority` wins, then the plugin that goes first. What lost is
kept in `Verdict.overruled`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import CodeType
from typing import TYPE_CHECKING, Any

import attrs
from attrs.validators import min_len
from packaging.requirements import Requirement

from armature.callables import (
    MISSING,
    Subject,
    describe,
    describe_frame,
    find_all_loaded,
    find_loaded,
    is_callable,
    is_module,
    is_written_in_c,
    layers,
    same_function,
)

if TYPE_CHECKING:
    from armature.rules_api import in_graph, inline, skip
    from armature.tables import Tables

__all__ = [
    "Decision",
    "Missing",
    "Rule",
    "RuleBook",
    "RuleOrigin",
    "Subject",
    "Verdict",
    "in_graph",
    "inline",
    "load_name",
    "skip",
]


class Decision(Enum):
    """What to do with a callable."""

    IN_GRAPH = "in_graph"  # a graph node, or folded when all arguments are constant
    INLINE = "inline"  # trace into it
    SKIP = "skip"  # do not trace: a graph break when called, run eagerly when it is a frame


@attrs.frozen
class RuleOrigin:
    """Who gave a rule: distribution, and the file and line of the rule where known."""

    plugin: str
    file: str = ""
    line: int = 0


@attrs.frozen
class Rule:
    """One row of knowledge. `target`: a callable, "pkg.mod.fn", "pkg.mod.Class#method", or a module or package name.

    A module's name covers what is below it too; "pkg.__init__" covers the package's own file only. `priority` decides
    between plugins, larger wins. `requires` limits the rule to versions of a distribution ("torch>=2.12"). A name that
    does not exist is reported by `armature plugins doctor`, it is not an error. `origin`: where the row stands, for
    rows read from data files; the plugin in it is filled in.
    """

    target: Callable[..., object] | types.ModuleType | str
    decision: Decision
    reason: str = attrs.field(validator=min_len(1))
    priority: int = 0
    requires: str = ""
    origin: RuleOrigin | None = None


@attrs.frozen
class Verdict:
    """A decision with its reason; without one it cannot be built."""

    decision: Decision
    reason: str = attrs.field(validator=min_len(1))
    origin: RuleOrigin
    overruled: tuple[Verdict, ...] = ()
    priority: int = 0  # of the rule; one larger than a handler's goes before the handler


@attrs.frozen
class Missing:
    """A rule that matches nothing here, and why."""

    rule: Rule
    origin: RuleOrigin
    why: str


_DEFAULT = RuleOrigin("armature", __file__)
_BY_DEFAULT = "no rule speaks of it, and Python functions are traced into by default"
_WRITTEN_IN_C = "written in C, and no rule, handler or polyfill says how to trace it"
_NOT_CALLABLE = "not a callable"

_Row = tuple[Rule, RuleOrigin]


@attrs.frozen
class _Strong:
    """Stands for a weak reference to an object that cannot have one."""

    obj: object

    def __call__(self) -> object:
        return self.obj


@attrs.define(eq=False)
class _Index:
    """The rows by what they name. Names resolve without importing; a module loaded later is seen later.

    by_id holds the object itself, so that its id stays its own.
    """

    by_id: dict[int, tuple[object, list[_Row]]] = attrs.field(factory=dict)
    by_code: dict[int, tuple[CodeType, list[_Row]]] = attrs.field(factory=dict)
    by_name: dict[str, list[_Row]] = attrs.field(factory=dict)
    pending: dict[str, list[_Row]] = attrs.field(factory=dict)
    modules_seen: int = 0

    def add(self, row: _Row) -> None:
        """File a row under its name or its object."""
        target = row[0].target
        if type(target) is str:
            name = target.replace("#", ".")
            self.by_name.setdefault(name, []).append(row)
            self.pending.setdefault(name, []).append(row)
        elif is_module(target):
            self.by_name.setdefault(describe(target).module, []).append(row)
        else:
            self._file(target, [row])

    def refresh(self) -> None:
        """Look again for names that were not there, if modules were loaded since."""
        if len(sys.modules) == self.modules_seen:
            return
        self.modules_seen = len(sys.modules)
        for name, found in find_all_loaded(list(self.pending)):
            if found is not MISSING:
                rows = self.pending.pop(name)
                if not is_module(found):
                    self._file(found, rows)

    def _file(self, target: object, rows: list[_Row]) -> None:
        for layer in same_function(target):
            self.by_id.setdefault(id(layer), (layer, []))[1].extend(rows)
            if type(layer) is types.FunctionType:
                self.by_code.setdefault(id(layer.__code__), (layer.__code__, []))[1].extend(rows)

    def for_object(self, obj: object) -> list[_Row]:
        """Rows that name this very object, larger priority first."""
        held = self.by_code.get(id(obj)) if type(obj) is CodeType else self.by_id.get(id(obj))
        return sorted(held[1], key=lambda row: -row[0].priority) if held is not None and held[0] is obj else []

    def for_name(self, subject: Subject) -> list[_Row]:
        """Rows that name the object, unless a loaded module has another under that name."""
        rows = self.by_name.get(subject.name)
        if rows is None:
            return []
        there = find_loaded(subject.name)
        return sorted(rows, key=lambda row: -row[0].priority) if there is MISSING or there is subject.obj else []

    def for_module(self, module: str, has_code: bool) -> list[_Row]:
        """Rows that name the module or a package above it: larger priority, then not skip, then nearer."""
        found = [(0, row) for row in self.by_name.get(f"{module}.__init__", ())]
        name = module
        while name:
            found += [(len(name), row) for row in self.by_name.get(name, ())]
            name = name.rpartition(".")[0]
        # What is written in C has nothing to trace into.
        kept = [f for f in found if has_code or f[1][0].decision is not Decision.INLINE]
        kept.sort(key=lambda f: (-f[1][0].priority, f[1][0].decision is Decision.SKIP, -f[0]))
        return [row for _, row in kept]


@attrs.define(eq=False)
class RuleBook:
    """Answers for one snapshot of the tables. Making one is free: the rows are read at the first question.

    Answers are kept per object, by identity; an entry dies with its object, so that a reused id is not mistaken for it.
    """

    tables: Tables
    _index: _Index | None = None
    _deciders: tuple[Callable[[Subject], Verdict | None], ...] = ()
    _not_here: list[Missing] = attrs.field(factory=list)
    _kept: dict[int, tuple[Callable[[], object], Verdict]] = attrs.field(factory=dict)

    def verdict(self, obj: object) -> Verdict:
        """What to do with a call of this object. Under 1 us when asked before; runs none of the object's code."""
        if type(obj) is types.MethodType:  # made anew at each access
            obj = obj.__func__
        held = self._kept.get(id(obj))
        if held is not None and held[0]() is obj:
            return held[1]
        verdict = self._decide(list(layers(obj)))
        self._keep(obj, verdict)
        return verdict

    def frame_verdict(self, code: CodeType, variables: Mapping[str, object]) -> Verdict:
        """What to do with a frame about to run. That a function goes in the graph says nothing about its frame."""
        held = self._kept.get(id(code))
        if held is not None and held[0]() is code:
            return held[1]
        subject = describe_frame(code, variables)
        self.index.refresh()
        rows = [row for row in self.index.for_object(code) if row[0].decision is not Decision.IN_GRAPH]
        rows += self.index.for_module(subject.module, has_code=True)
        verdict = _chain([_as_verdict(row) for row in rows], Verdict(Decision.INLINE, _BY_DEFAULT, _DEFAULT))
        self._keep(code, verdict)
        return verdict

    def missing(self) -> tuple[Missing, ...]:
        """Rules that match nothing: the name is not there, or the distribution has another version."""
        self.index.refresh()
        absent = [
            Missing(rule, origin, f"{rule.target} does not exist here")
            for name, rows in self.index.pending.items()
            for rule, origin in rows
            if _is_absent(name)
        ]
        return (*self._not_here, *absent)

    def rows(self) -> Iterator[_Row]:
        """All rows in force."""
        for rows in self.index.by_name.values():
            yield from rows
        named = {id(row[0]) for rows in self.index.by_name.values() for row in rows}
        for _, held in self.index.by_id.values():
            yield from (row for row in held if id(row[0]) not in named)

    @property
    def index(self) -> _Index:
        """The rows, read and indexed at the first use."""
        if self._index is None:
            index = _Index()
            for rule, origin in self.tables.rules:
                if rule.requires and (why := _not_met(rule.requires)):
                    self._not_here.append(Missing(rule, origin, why))
                else:
                    index.add((rule, origin))
            self._deciders = self.tables.deciders()
            self._index = index
        return self._index

    def _decide(self, stack: list[object]) -> Verdict:
        index = self.index
        index.refresh()
        subject = describe(stack[-1])
        rows = [row for layer in stack for row in index.for_object(layer)]
        found = [_as_verdict(row) for row in rows or index.for_name(subject)]
        if not found:
            found = self._computed(stack)
        has_code = not is_written_in_c(stack[-1])
        found += [_as_verdict(row) for row in index.for_module(subject.module, has_code)]
        return _chain(found, _default(subject))

    def _computed(self, stack: list[object]) -> list[Verdict]:
        """What the plugins compute from the object or, failing that, from what it wraps."""
        answers = (ask(subject) for subject in map(describe, stack) for ask in self._deciders)
        first = next((answer for answer in answers if answer is not None), None)
        return [] if first is None else [first]

    def _keep(self, obj: object, verdict: Verdict) -> None:
        key = id(obj)
        kept = self._kept

        def forget(_: object) -> None:
            kept.pop(key, None)

        try:
            reference: Callable[[], object] = weakref.ref(obj, forget)
        except TypeError:
            if not is_written_in_c(obj):  # an instance that cannot be watched must not be kept alive by us
                return
            reference = _Strong(obj)
        kept[key] = (reference, verdict)


def load_name(name: str) -> Any:
    """The object of a dotted name, importing what it needs: for the command line. LookupError when nothing is there."""
    parts = name.replace("#", ".").split(".")
    for end in range(1, len(parts) + 1):
        try:
            importlib.import_module(".".join(parts[:end]))
        except ImportError:
            break
    found = find_loaded(name)
    if found is MISSING:
        raise LookupError(name)
    return found


def _as_verdict(row: _Row) -> Verdict:
    rule, origin = row
    return Verdict(rule.decision, rule.reason, origin, priority=rule.priority)


def _chain(found: list[Verdict], default: Verdict) -> Verdict:
    if not found:
        return default
    return attrs.evolve(found[0], overruled=(*found[0].overruled, *found[1:]))


def _default(subject: Subject) -> Verdict:
    if not is_callable(subject.obj):
        return Verdict(Decision.SKIP, _NOT_CALLABLE, _DEFAULT)
    if is_written_in_c(subject.obj):
        return Verdict(Decision.SKIP, _WRITTEN_IN_C, _DEFAULT)
    return Verdict(Decision.INLINE, _BY_DEFAULT, _DEFAULT)


def _not_met(requires: str) -> str:
    """Why the installed version of a distribution does not meet the requirement; empty when it does."""
    requirement = Requirement(requires)
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return f"it is for {requires}, and {requirement.name} is not installed"
    if requirement.specifier.contains(version, prereleases=True):
        return ""
    return f"it is for {requires}, and {requirement.name} {version} is installed"


def _is_absent(name: str) -> bool:
    """Whether nothing can ever answer to the name: its owner is loaded, lacks it, and no module file bears it."""
    owner = name.rpartition(".")[0]
    if owner in sys.modules:
        return not hasattr(sys.modules[owner], "__path__") or importlib.util.find_spec(name) is None
    return find_loaded(owner) is not MISSING


def __getattr__(name: str) -> Any:
    # `armature.rules.skip` and its kin ask the plugin manager, which knows rules: loaded at first use.
    if name not in ("skip", "inline", "in_graph"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("armature.rules_api"), name)
