"""Rules and verdicts: whether a callable enters the graph, is traced into, or is skipped.

Only the precedence is defined here; the rows (`rules/data.py`) come from plugins (`armature_rules`, `armature_decide`).

The first match decides: a rule for the very object; a plugin's computed verdict (`armature_decide`); rules for its
module or a package above it, `inline` and `in_graph` before `skip`, nearer before farther; then the default, which is
to trace into Python functions. Within one step a larger `priority` wins, then the plugin that comes first. Verdicts
that lost are stored in `Verdict.overruled`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol

import attrs
from packaging.requirements import Requirement

from armature.introspection import (
    MISSING,
    Subject,
    describe,
    describe_frame,
    find_loaded,
    has_code,
    is_callable,
    is_module,
    layers,
    member,
    unbound,
)
from armature.rules.cache import VerdictCache
from armature.rules.data import Decision, Missing, Rule, RuleOrigin, RuleTable, Verdict
from armature.rules.index import RuleIndex

if TYPE_CHECKING:
    from armature.rules.index import Entry


_BY_DEFAULT = "no rule speaks of it, and Python functions are traced into by default"
_WRITTEN_IN_C = "it has no Python code (written in C), and no rule, handler or polyfill says how to trace it"
_MADE_ANEW = frozenset(map(id, (types.MethodType, types.MethodWrapperType, staticmethod, classmethod)))
_STAND_IN = "a polyfill: Python with the same result is traced in its place"
_HANDLED = "a handler says how a call of it is traced; where the handler declines, it is left alone"
_NOT_CALLABLE = "not a callable"


class RuleSource(Protocol):
    """The plugins' tables as the rule book uses them."""

    @property
    def rules(self) -> Sequence[tuple[Rule | RuleTable, RuleOrigin]]:
        """Every rule or table of rules, in the order of the plugins."""

    @property
    def ids_with_rows(self) -> frozenset[int]:
        """Ids of the objects that have a handler or polyfill."""

    def deciders(self) -> Sequence[Callable[[Subject], Verdict | None]]:
        """The deciders to ask about a subject that no rule covers, in order."""

    def stand_in(self, fn: object) -> tuple[int, RuleOrigin] | None:
        """The priority and plugin of a polyfill for this very object."""

    def handled_by(self, fn: object) -> RuleOrigin | None:
        """The origin of a handler for this very object."""


class NamedCode(Protocol):
    """The code of a frame, and the name of its module."""

    @property
    def code(self) -> CodeType:
        """The frame's code."""

    @property
    def module(self) -> object:
        """What its globals call `__name__`."""


@attrs.define(eq=False)
class RuleBook:
    """Answers for one snapshot of the tables. Making one is free: the rows are read at the first question.

    Answers are cached per object, by identity; an entry dies with its object, so that a reused id is not mistaken for
    it.
    """

    tables: RuleSource
    _index: RuleIndex | None = None
    _deciders: tuple[Callable[[Subject], Verdict | None], ...] = ()
    _not_here: list[Missing] = attrs.field(factory=list)
    _cache: VerdictCache = attrs.field(factory=VerdictCache)

    def verdict(self, obj: object) -> Verdict:
        """What to do with a call of this object. Under 1 us when cached; runs none of the object's code."""
        kind = type(obj)
        if id(kind) in _MADE_ANEW:  # made anew at each access, and not weakly referenceable
            obj = _lasting(obj)
        held = self._cache.get(obj)
        if held is not None:
            return held
        shared = self._cache.of_class(obj)
        if shared is not None and self._index is not None and self._index.modules_loaded == len(sys.modules):
            return shared
        self._refresh()
        stack = list(layers(obj))
        verdict = self._decide(stack)
        self._cache.store(obj, verdict, shared=self._is_of_class(stack))
        return verdict

    def frame_verdict(self, code: CodeType, variables: Mapping[str, object]) -> Verdict:
        """What to do with a frame about to run. A rule that puts calls of a function in the graph says nothing about
        its frame."""
        held = self._cache.get(code)
        if held is not None:
            return held
        subject = describe_frame(code, variables)
        self._refresh()
        named = self.index.for_object(code) or self.index.for_name(subject)
        rows = [row for row in named if row[0].decision is not Decision.IN_GRAPH]
        rows += self._for_module(subject.module, traceable=True)
        verdict = _chain([_as_verdict(row) for row in rows], _default(subject))
        self._cache.store(code, verdict)
        return verdict

    def innermost(self, frames: Iterable[NamedCode]) -> int:
        """The position of the innermost frame that is not of a library whose calls run as a whole; the outermost is
        0."""
        verdicts = (self.frame_verdict(frame.code, {"__name__": frame.module}) for frame in frames)
        return max((depth for depth, verdict in enumerate(verdicts) if not verdict.whole), default=0)

    def missing(self) -> tuple[Missing, ...]:
        """Rules that match nothing: the name does not exist, or the distribution has another version."""
        self._refresh()
        absent = [
            Missing(rule, rule_origin, f"{rule.target} does not exist here")
            for name, entries in self.index.unresolved_names()
            if _is_absent(name)
            for rule, rule_origin in map(_as_row, entries)
        ]
        return (*self._not_here, *absent)

    def rows(self) -> Iterator[tuple[Rule, RuleOrigin]]:
        """All rules in force, one by one."""
        return map(_as_row, self.index.entries())

    def disagreements(self) -> Iterator[list[tuple[Rule, RuleOrigin]]]:
        """Rules of different plugins about one object under several names, the one that decides first."""
        self._refresh()
        for entries in self.index.of_same_object():
            rows = [_as_row(entry) for entry in entries]
            targets = {rule.name or id(rule.target) for rule, _ in rows}
            plugins, decisions = {origin.plugin for _, origin in rows}, {rule.decision for rule, _ in rows}
            if min(len(targets), len(plugins), len(decisions)) > 1:
                yield rows

    @property
    def index(self) -> RuleIndex:
        """The rows, read and indexed on first use."""
        if self._index is None:
            index, not_here = RuleIndex(), []
            not_met = functools.cache(_not_met)
            for given, origin in self.tables.rules:
                rules = given.rules(origin.plugin) if isinstance(given, RuleTable) else [given]
                if given.requires and (why := not_met(given.requires)):
                    not_here += [Missing(rule, rule.origin or origin, why) for rule in rules]
                elif isinstance(given, RuleTable):
                    index.add_table(given, origin)
                else:
                    index.add(given, origin)
            self._deciders = tuple(self.tables.deciders())
            self._not_here = not_here
            self._forget(index)
            self._index = index
        return self._index

    def _refresh(self) -> None:
        """Take modules into account that were loaded since. Their objects may have been asked about under another name
        before."""
        if self.index.refresh():
            self._forget(self.index)

    def _forget(self, index: RuleIndex) -> None:
        self._cache.clear(self.tables.ids_with_rows | index.by_id.keys())

    def _is_of_class(self, stack: list[object]) -> bool:
        """Whether an instance that no row names can share the verdict of the other instances of its class."""
        # A name may now lead to this very object, if calling it runs no function that identifies it.
        return len(stack) > 1 or not is_callable(stack[0]) or describe(stack[0]).module not in self.index.members

    def _decide(self, stack: list[object]) -> Verdict:
        index = self.index
        subject = describe(stack[-1])
        rows = [row for layer in stack for row in index.for_object(layer)]
        if not (is_callable(stack[0]) or has_code(stack[-1])):  # rules for functions of its module don't apply to it
            return _chain([_as_verdict(row) for row in rows], _default(subject))
        found = [_as_verdict(row) for row in rows or index.for_name(subject)]
        if not found:
            found = self._computed(stack)
        of_module = [_as_verdict(row) for row in self._for_module(subject.module, has_code(stack[-1]))]
        if not found:
            of_module = self._with_stand_in(stack, of_module)
        return _chain([*found, *of_module], self._of_handler(stack) or _default(subject))

    def _with_stand_in(self, stack: list[object], of_module: list[Verdict]) -> list[Verdict]:
        """The verdicts on a module, with a polyfill's inserted: only a rule of larger priority precedes it."""
        held = next((row for layer in stack if (row := self.tables.stand_in(layer)) is not None), None)
        if held is None:
            return of_module
        priority, origin = held
        before = sum(verdict.priority > max(priority, 0) for verdict in of_module)
        return [*of_module[:before], Verdict(Decision.INLINE, _STAND_IN, origin), *of_module[before:]]

    def _of_handler(self, stack: list[object]) -> Verdict | None:
        """The verdict on C code that has a handler but no rule: the handler is asked before the rules."""
        if has_code(stack[-1]):
            return None
        found = next((origin for layer in stack if (origin := self.tables.handled_by(layer)) is not None), None)
        return None if found is None else Verdict(Decision.SKIP, _HANDLED, found, breaks="handler-declines")

    def _for_module(self, module: str, traceable: bool) -> list[Entry]:
        """Rows for the module or a package above it, sorted by larger priority, then not skip, then nearer."""
        # C code can't be traced into.
        kept = [
            (-row[0].priority, row[0].decision is Decision.SKIP, -nearness, row)
            for nearness, row in self.index.for_module(module)
            if (traceable or row[0].decision is not Decision.INLINE) and not _is_of_function(row)
        ]
        kept.sort(key=lambda found: found[:3])
        return [found[-1] for found in kept]

    def _computed(self, stack: list[object]) -> list[Verdict]:
        """The verdict that plugins compute from the object or, failing that, from what it wraps."""
        answers = (ask(subject) for subject in map(describe, stack) for ask in self._deciders)
        first = next((answer for answer in answers if answer is not None), None)
        return [] if first is None else [first]


def _lasting(obj: Any) -> Any:
    """A permanent object that represents one which is made anew at each access."""
    if type(obj) is not types.MethodWrapperType:
        return obj.__func__
    found = unbound(obj)
    return obj if found is MISSING else found


def load_name(name: str) -> Any:
    """The object of a dotted name, importing modules as needed, for the command line. LookupError if there is none."""
    parts = name.replace("#", ".").split(".")
    for end in range(1, len(parts) + 1):
        try:
            importlib.import_module(".".join(parts[:end]))
        except Exception:  # an error in a module's own import counts as a missing module here
            break
    found = find_loaded(name)
    if found is MISSING:
        raise LookupError(name)
    return found


def _is_of_function(entry: Entry) -> bool:
    """Whether a row means the function `pkg.name`, not the module of that name that the function shadows."""
    rule, _, at = entry
    if rule.decision is not Decision.IN_GRAPH or is_module(rule.target if isinstance(rule, Rule) else None):
        return False
    name = rule.names[at] if isinstance(rule, RuleTable) else rule.name
    found = find_loaded(name) if name else MISSING
    return found is not MISSING and not is_module(found)


def _as_verdict(entry: Entry) -> Verdict:
    rule, origin, at = entry
    if at and isinstance(rule, RuleTable) and rule.line:
        origin = attrs.evolve(origin, line=origin.line + at)
    return Verdict(
        rule.decision,
        rule.reason,
        origin,
        priority=rule.priority,
        answer=rule.answer,
        breaks=rule.breaks,
        whole=rule.whole,
    )


def _as_row(entry: Entry) -> tuple[Rule, RuleOrigin]:
    rule, origin, at = entry
    if isinstance(rule, RuleTable):
        rule = rule.rule(at, origin.plugin)
        return rule, rule.origin or origin
    return rule, origin


def _chain(found: list[Verdict], default: Verdict) -> Verdict:
    if not found:
        return default
    return attrs.evolve(found[0], overruled=(*found[0].overruled, *found[1:]))


def _default(subject: Subject) -> Verdict:
    """The verdict if no rule applies."""
    if not subject.is_frame and not is_callable(subject.obj):
        return Verdict(Decision.SKIP, _NOT_CALLABLE, own_origin(_default))
    if not has_code(subject.obj):
        return Verdict(Decision.SKIP, _WRITTEN_IN_C, own_origin(_default), breaks="function-in-c")
    return Verdict(Decision.INLINE, _BY_DEFAULT, own_origin(_default))


def own_origin(function: Callable[..., object]) -> RuleOrigin:
    """The origin of a verdict by armature itself, in one of its functions."""
    code = function.__code__
    return RuleOrigin("armature", code.co_filename, code.co_firstlineno)


def _not_met(requires: str) -> str:
    """Why the installed version of a distribution does not meet the requirement; empty if it does."""
    requirement = Requirement(requires)
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return f"it is for {requires}, and {requirement.name} is not installed"
    if requirement.specifier.contains(version, prereleases=True):
        return ""
    return f"it is for {requires}, and {requirement.name} {version} is installed"


def _is_absent(name: str) -> bool:
    """Whether nothing can have this name: no module file has it, and its owner is loaded or absent itself."""
    owner = name.rpartition(".")[0]
    if owner and owner not in sys.modules:
        return find_loaded(owner) is not MISSING or _is_absent(owner)
    if owner and member(sys.modules[owner], "__path__") is MISSING:
        return True
    try:
        return importlib.util.find_spec(name) is None  # imports nothing, because the package is loaded
    except (ImportError, ValueError):
        return True
