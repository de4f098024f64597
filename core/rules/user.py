"""The user as a plugin like any other: rules from calls and pyproject.toml, polyfills, marked functions.

The plugin manager has one `UserRules`, under the name "user". `armature.rules.skip` and the like add to it.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any, TypeVar

import attrs

from armature.hookspecs import hookimpl
from armature.introspection import Subject
from armature.rules.data import SKIPPED, Decision, Rule, RuleOrigin, Verdict
from armature.rules.targets import USER
from armature.trace.handlers import Handler, Polyfill

__all__ = ["CALLS_FIRST", "USER", "Mark", "UserRows", "UserRules", "mark_of"]

CALLS_FIRST = 10_000  # a call precedes pyproject.toml, a later call precedes an earlier one
MARK = "__armature_mark__"
T = TypeVar("T")


@attrs.frozen
class Mark:
    """A verdict stored on a function. `code`: the marked function's own; a wrapper may copy attributes."""

    code: CodeType = attrs.field(eq=id)
    decision: Decision
    reason: str
    origin: RuleOrigin


def mark_of(fn: object) -> Mark | None:
    """The mark of a function, None if it has none. Runs none of the function's code."""
    if type(fn) is not FunctionType:
        return None
    found = dict.get(fn.__dict__, MARK)
    return found if type(found) is Mark and found.code is fn.__code__ else None


@attrs.frozen(eq=False)
class UserRows:
    """The rows of one call, and their target."""

    about: object
    rules: tuple[Rule, ...] = ()
    handlers: tuple[Handler, ...] = ()
    polyfills: tuple[Polyfill, ...] = ()


@attrs.define(eq=False)
class UserRules:
    """All rules that the user has given in this process. `changed` is called after each change, to rebuild tables.

    project: rules of pyproject.toml.
    """

    changed: Callable[[], None]
    project: tuple[Rule, ...] = ()
    _declared: dict[int, UserRows] = attrs.field(factory=dict)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    ARMATURE_PRIORITY = CALLS_FIRST

    def add(self, make: Callable[[int], UserRows]) -> int:
        """Add the rows that `make` returns for a priority above all earlier ones. Returns a number for `remove`."""
        with self._lock:
            number = next(self._numbers)
            self._declared[number] = make(CALLS_FIRST + 2 * number)
        self.changed()
        return number

    def mark(self, fn: Any, mark: Mark) -> Any:
        """Store the verdict on the function, and return it. The mark is one of the rules' sources."""
        fn.__dict__[MARK] = mark
        return fn

    def remove(self, number: int) -> None:
        """Take the rows of one call back; does nothing if they are gone."""
        with self._lock:
            found = self._declared.pop(number, None)
        if found is not None:
            self.changed()

    def holds(self, number: int) -> bool:
        """Whether the rows of that call are still in force."""
        with self._lock:
            return number in self._declared

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Without rules from calls at first; those made inside end with it, those from before then hold again. For
        tests, which share a process with modules that mark their own functions. Rules of pyproject.toml stay."""
        before = self._set({})
        try:
            yield
        finally:
            self._set(before)

    def _set(self, declared: dict[int, UserRows]) -> dict[int, UserRows]:
        """Replace the rules from calls. Returns those in force until now."""
        with self._lock:
            before, self._declared = self._declared, declared
        self.changed()
        return before

    @property
    def declared(self) -> tuple[UserRows, ...]:
        """The rules from calls that are in force, the oldest first."""
        with self._lock:
            return tuple(self._declared.values())

    @hookimpl
    def armature_rules(self) -> Iterable[Rule]:
        """The rules, those from calls first."""
        return (*_all(self.declared, lambda rows: rows.rules), *self.project)

    @hookimpl
    def armature_handlers(self) -> Iterable[Handler]:
        """The handlers of functions passed to `trace_through`."""
        return _all(self.declared, lambda rows: rows.handlers)

    @hookimpl
    def armature_polyfills(self) -> Iterable[Polyfill]:
        """The polyfills passed to `substitute`."""
        return _all(self.declared, lambda rows: rows.polyfills)

    @hookimpl
    def armature_decide(self, subject: Subject) -> Verdict | None:
        """The verdicts stored on functions, as by `armature.disable`."""
        mark = mark_of(subject.obj)
        if mark is None:
            return None
        breaks = "disabled-function" if mark.decision is Decision.SKIP else SKIPPED
        return Verdict(mark.decision, mark.reason, mark.origin, breaks=breaks)


def _all(declared: Iterable[UserRows], rows: Callable[[UserRows], Iterable[T]]) -> tuple[T, ...]:
    return tuple(row for one in declared for row in rows(one))
