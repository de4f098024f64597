"""`armature.rules.skip`, `inline` and `in_graph`: a user's own rules, as calls, context managers and decorators.

    armature.rules.skip("mylib.io")                 # from now on
    with armature.rules.inline(mylib.normalize):    # for the body
        model(x)

    @armature.rules.skip                            # the function below
    def report(x): ...

They go before the rules of all plugins, a later one before an earlier one, and hold for the whole process. What was
compiled and asked for something on which the rules say otherwise now is forgotten, and compiled anew when it is called.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from armature.frame.hook import COMPILE_LOCK
from armature.pipeline.session import session
from armature.plugins.plugin_manager import manager
from armature.rules.data import Decision, Rule
from armature.rules.errors import BadTarget
from armature.rules.targets import ORIGINAL, called_from, check_target, original, place
from armature.rules.user import Said, UserRules

__all__ = ["Given", "change", "in_graph", "inline", "skip"]

UNSET: Any = object()
LONGEST_WAIT = 10.0  # seconds


class Given:
    """A rule that is in force: undone by `undo()`, or at the end of a `with`. Called, it calls what the rule is about.

    So `@armature.rules.skip` gives something that is called like the function below it; in a class it gives the
    function itself, and so does `@armature.rules.skip()`.
    """

    def __init__(self, target: object, user: UserRules, number: int) -> None:
        self._target, self._user, self._number = target, user, number
        if callable(target):
            with contextlib.suppress(Exception):  # an object may refuse to tell its name
                functools.update_wrapper(self, target, updated=())
            self.__dict__[ORIGINAL] = target

    def undo(self) -> None:
        """Take the rule back. Nothing happens when that is done already."""
        if self._user.holds(self._number):
            change(lambda: self._user.unsay(self._number))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not callable(self._target):
            raise BadTarget(
                call="a rule",
                target=repr(self._target),
                problem="a name or module can't be called, so this can't be a decorator",
                fix="Put @armature.rules.skip above the function that it is about, or use `with`.",
            )
        return self._target(*args, **kwargs)

    def __get__(self, obj: object, owner: type | None = None) -> Any:
        bind = getattr(type(self._target), "__get__", None)
        return self if bind is None else bind(self._target, obj, owner)

    def __set_name__(self, owner: type, name: str) -> None:
        setattr(owner, name, self._target)

    def __reduce__(self) -> Any:
        return getattr(self._target, "__qualname__", "") or super().__reduce__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __repr__(self) -> str:
        return f"<rule for {self._target!r}>"


def change(step: Callable[[], Any]) -> Any:
    """Change what the user says, and forget code that relied on the contrary. A compilation going on is waited for."""
    # Not for ever: it may wait for the import of the very module that says this, and would then keep its old rules.
    waited = COMPILE_LOCK.acquire(timeout=LONGEST_WAIT)
    try:
        result = step()
        session().rules_changed(manager().tables)
    finally:
        if waited:
            COMPILE_LOCK.release()
    return result


def skip(target: Any = UNSET, *, reason: str = "") -> Any:
    """Don't trace the target: a call of it breaks the graph, and its own frame runs eagerly; frames below it do not.

    target: a function, method or class, a module or package, or a name: "pkg.mod.fn", "pkg.mod.Class#method". Without
    it a decorator is returned, which gives the function back as it is. reason: what `armature why` prints. Errors:
    BadTarget.
    """
    return _say(Decision.SKIP, target, reason)


def inline(target: Any = UNSET, *, reason: str = "") -> Any:
    """Trace into the target, whatever plugins say of it. Arguments as those of `skip`. Errors: BadTarget."""
    return _say(Decision.INLINE, target, reason)


def in_graph(target: Any = UNSET, *, reason: str = "") -> Any:
    """Put calls of the target in the graph as they are, one node each. Arguments as those of `skip`.

    The target has to compute on its arguments only, without effects that Python can see. Errors: BadTarget.
    """
    return _say(Decision.IN_GRAPH, target, reason)


def _say(decision: Decision, target: Any, reason: str) -> Any:
    call = f"armature.rules.{decision.value}"
    if not isinstance(reason, str):
        raise BadTarget(call=call, target=f"reason={reason!r}", problem="a reason is a text", fix="Say why in words.")
    if target is UNSET:
        return functools.partial(_decorate, decision, reason)
    target = original(target)
    check_target(call, target, decision)
    user = manager().user
    return Given(target, user, change(lambda: user.say(functools.partial(_rule, decision, target, reason))))


def _decorate(decision: Decision, reason: str, target: Any) -> Any:
    _say(decision, target, reason)
    return target


def _rule(decision: Decision, target: Any, reason: str, priority: int) -> Said:
    origin = called_from()
    text = reason or f"armature.rules.{decision.value} at {place(origin)}"
    return Said(target, (Rule(target, decision, text, priority, origin=origin),))
