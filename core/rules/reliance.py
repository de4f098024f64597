"""The rules that a compilation relied on: the callables that it asked about, and the answers.

Tracing asks in the same order each time, so if all answers are the same it would produce the same code, and a change of
the rules does not affect that code. An object that is gone, or that can't be watched, counts as changed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from types import CodeType, MethodType
from typing import TYPE_CHECKING, Any

import attrs

from armature.rules.cache import watch

if TYPE_CHECKING:
    from armature.plugins.tables import Tables
    from armature.rules.data import Decision

Answers = tuple[object, ...]


@attrs.frozen(eq=False)
class Reliance:
    """A callable, and the rules' answer. `find`: returns the callable, None if it is gone."""

    find: Callable[[], object]
    answers: Answers

    def holds(self, tables: Tables) -> bool:
        """Whether the answer is still the same."""
        found = self.find()
        return found is not None and same(answers_about(tables, found), self.answers)


@attrs.define(eq=False)
class Relied:
    """The answers behind the code for one code object. `frame`: the module of its frames, the decision on them, and
    whether their calls run as a whole."""

    frame: tuple[str, Decision, bool] | None = None
    callables: list[Reliance] = attrs.field(factory=list)

    def add(self, tables: Tables, asked: Iterable[object]) -> None:
        """Record these tables' answers about the callables."""
        self.callables += [Reliance(watched(fn), answers_about(tables, fn)) for fn in asked]

    def holds(self, tables: Tables, code: CodeType) -> bool:
        """Whether these tables give the same answers."""
        if self.frame is not None:
            module, decision, whole = self.frame
            verdict = tables.rule_book.frame_verdict(code, {"__name__": module})
            if verdict.decision is not decision or verdict.whole is not whole:
                return False
        return all(reliance.holds(tables) for reliance in self.callables)


def answers_about(tables: Tables, fn: Any) -> Answers:
    """Everything that tracing a call can depend on: its handlers, polyfill and verdict."""
    polyfill, verdict = tables.polyfill(fn), tables.rule_book.verdict(fn)
    handled = [said for handler in tables.handlers_of(fn) for said in (handler.fn, handler.priority)]
    replaced = (None, 0) if polyfill is None else (polyfill.replacement, polyfill.priority)
    return (*handled, *replaced, verdict.decision, verdict.answer, verdict.whole, verdict.priority)


def same(left: Answers, right: Answers) -> bool:
    """Whether the answers are the same: functions by identity, numbers by value."""
    if len(left) != len(right):
        return False
    return all(a is b or (type(a) is int and a == b) for a, b in zip(left, right, strict=True))


def watched(fn: Any) -> Callable[[], object]:
    """A reference that returns the callable as long as it lives."""
    if type(fn) is MethodType:  # made anew at each access
        try:
            return weakref.WeakMethod(fn)
        except TypeError:
            return unwatched
    return watch(fn, unwatched) or unwatched


def unwatched(*_: object) -> None:
    """Used in place of a reference to an object that can't be watched: it counts as gone."""
    return
