"""`armature.rules.skip`, `inline` and `in_graph`: a user's own rules, as calls, context managers and decorators.

    armature.rules.skip("mylib.io")                 # from now on
    with armature.rules.inline(mylib.normalize):    # for the body
        model(x)

    @armature.rules.skip                            # the function below
    def report(x): ...

They precede the rules of all plugins, a later one precedes an earlier one, and they apply to the whole process.
Compiled code that relied on something for which the rules now give another answer is forgotten, and compiled anew when
it is called.
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
from armature.rules.user import UserRows, UserRules

__all__ = ["ActiveRule", "change", "in_graph", "inline", "skip"]

UNSET: Any = object()
LONGEST_WAIT = 10.0  # seconds


class ActiveRule:
    """A rule in force: undone by `undo()`, or at the end of a `with`. Calling it calls the rule's target.

    So `@armature.rules.skip` results in something that is called like the function below it; in a class, and with
    `@armature.rules.skip()`, the result is the function itself.
    """

    def __init__(self, target: object, user: UserRules, number: int) -> None:
        self._target, self._user, self._number = target, user, number
        if callable(target):
            with contextlib.suppress(Exception):  # an object may raise when its name is read
                functools.update_wrapper(self, target, updated=())
            self.__dict__[ORIGINAL] = target

    def undo(self) -> None:
        """Take the rule back. Does nothing if that is done already."""
        if self._user.holds(self._number):
            change(lambda: self._user.remove(self._number))

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
                problem="a name or module can't be called, so this can't be used as a decorator",
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
    """Change the user's rules, and forget code that relied on other answers. Waits for a running compilation."""
    # Wait only for a limited time: the compilation may itself wait for the import of the module that makes this call.
    # In that case it is compiled under the old rules.
    waited = COMPILE_LOCK.acquire(timeout=LONGEST_WAIT)
    try:
        result = step()
        session().rules_changed(manager().tables)
    finally:
        if waited:
            COMPILE_LOCK.release()
    return result


def skip(target: Any = UNSET, *, reason: str = "") -> Any:
    """Don't trace the target: a call of it breaks the graph, and its own frame runs eagerly; frames below it are
    traced.

    target: a function, method or class, a module or package, or a name: "pkg.mod.fn", "pkg.mod.Class#method". Without
    it a decorator is returned, which returns the function unchanged. reason: printed by `armature why`. Errors:
    BadTarget.
    """
    return _add_rule(Decision.SKIP, target, reason)


def inline(target: Any = UNSET, *, reason: str = "") -> Any:
    """Trace into the target, whatever plugins say. Arguments as for `skip`. Errors: BadTarget."""
    return _add_rule(Decision.INLINE, target, reason)


def in_graph(target: Any = UNSET, *, reason: str = "") -> Any:
    """Put calls of the target in the graph, one node each. Arguments as for `skip`.

    The target must compute on its arguments only, without effects that Python can see. Errors: BadTarget.
    """
    return _add_rule(Decision.IN_GRAPH, target, reason)


def _add_rule(decision: Decision, target: Any, reason: str) -> Any:
    call = f"armature.rules.{decision.value}"
    if not isinstance(reason, str):
        raise BadTarget(call=call, target=f"reason={reason!r}", problem="a reason is a text", fix="Say why in words.")
    if target is UNSET:
        return functools.partial(_decorate, decision, reason)
    target = original(target)
    check_target(call, target, decision)
    user = manager().user
    return ActiveRule(target, user, change(lambda: user.add(functools.partial(_rule, decision, target, reason))))


def _decorate(decision: Decision, reason: str, target: Any) -> Any:
    _add_rule(decision, target, reason)
    return target


def _rule(decision: Decision, target: Any, reason: str, priority: int) -> UserRows:
    origin = called_from()
    text = reason or f"armature.rules.{decision.value} at {place(origin)}"
    return UserRows(target, (Rule(target, decision, text, priority, origin=origin),))
