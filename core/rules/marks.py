"""The functions with which a user marks others: `disable`, `allow_in_graph`, `trace_through`, `substitute`."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, TypeVar

from torch import nn

from armature.errors import NotCallable, WrongArgument
from armature.introspection import class_member, is_class, is_object_of
from armature.plugins.plugin_manager import manager
from armature.plugins.registry import name_of
from armature.rules.data import Decision, Rule, RuleOrigin
from armature.rules.declare import change
from armature.rules.errors import BadTarget, SignatureMismatch
from armature.rules.targets import called_from, check_target, original, own_copy, place, refusal
from armature.rules.user import Mark, UserRows
from armature.torch_abi.eval_frame import set_eval_frame, skip_code
from armature.trace.callables import call_opaque
from armature.trace.handlers import Handler, Polyfill

__all__ = ["allow_in_graph", "disable", "substitute", "trace_through"]

F = TypeVar("F", bound=Callable[..., Any])


def disable(fn: Any = None, *, recursive: bool = True, reason: str = "") -> Any:
    """A function that always runs eagerly, with everything it calls; a call in a compiled function breaks the graph.

    recursive: if False, only its own frame runs eagerly, and its callees are compiled as usual. A module is changed in
    place and returned. Without `fn` a decorator is returned. Errors: NotCallable, WrongArgument, BadTarget.
    """
    if not isinstance(recursive, bool):
        raise WrongArgument(name="recursive", value=recursive, expected="True or False", call="armature.disable")
    if not isinstance(reason, str):
        raise WrongArgument(name="reason", value=reason, expected="a text", call="armature.disable")
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    origin = called_from()
    said = f"armature.disable{'' if recursive else '(recursive=False)'} at {place(origin)}"
    return _disabled(fn, recursive, f"{said}: {reason}" if reason else said, origin)


def not_callable(call: str, what: object) -> NotCallable:
    """The error of a call that needs a function and got something else; perhaps a name, as rules accept."""
    named = isinstance(what, str)
    suggestion = f"; names are for rules: armature.rules.skip({what!r})" if named else ""
    return NotCallable(call=call, what=f"{what!r:.80}", wanted="the function itself", suggestion=suggestion)


def _disabled(fn: Any, recursive: bool, reason: str, origin: RuleOrigin) -> Any:
    if is_object_of(fn, nn.Module):
        fn.forward = _disabled(fn.forward, recursive, reason, origin)
        return fn
    fn = original(fn)
    if type(fn) in (staticmethod, classmethod):
        return type(fn)(_disabled(fn.__func__, recursive, reason, origin))
    if is_class(fn):
        problem = "a class has many functions"
        fix = "Disable those of its methods that should run eagerly, or an object of it."
        raise BadTarget(call="armature.disable", target=name_of(fn), problem=problem, fix=fix)
    if not callable(fn):
        raise not_callable("armature.disable", fn)
    made = _with_all_below(fn) if recursive else _frame_only(fn, reason, origin)
    if isinstance(made, FunctionType):
        manager().user.mark(made, Mark(made.__code__, Decision.SKIP, reason, origin))
        skip_code(made.__code__)
    return made


def _with_all_below(fn: Callable[..., Any]) -> Any:
    def disabled(*args: Any, **kwargs: Any) -> Any:
        prior = set_eval_frame(None)
        try:
            return fn(*args, **kwargs)
        finally:
            set_eval_frame(prior)

    return _named(disabled, fn)


def _frame_only(fn: Any, reason: str, origin: RuleOrigin) -> Any:
    """A copy of the function whose frame is never traced: it has its own code object, and `fn` is unchanged."""
    if type(fn) is FunctionType:
        return own_copy(fn)
    if type(fn) is MethodType:
        return MethodType(_disabled(fn.__func__, False, reason, origin), fn.__self__)
    if is_object_of(fn, functools.partial):
        below, args, keywords = (getattr(functools.partial, name).__get__(fn) for name in ("func", "args", "keywords"))
        return functools.partial(_disabled(below, False, reason, origin), *args, **keywords)
    method = class_member(type(fn), "__call__")
    below = MethodType(_disabled(method, False, reason, origin), fn) if isinstance(method, FunctionType) else fn

    def disabled(*args: Any, **kwargs: Any) -> Any:
        return below(*args, **kwargs)

    return _named(disabled, fn)


def _named(made: Any, fn: Any) -> Any:
    # A code object of its own: functions made by one `def` share theirs, and a mark is for one function only.
    made = own_copy(made)
    with contextlib.suppress(Exception):  # an object may refuse to tell its name
        functools.update_wrapper(made, fn)
    return made


def allow_in_graph(fn: Any) -> Any:
    """Put calls of this function in the graph instead of tracing into it. Returns the function.

    Also accepts a list or tuple of functions. `armature.rules.in_graph` does the same and can be undone. Errors:
    NotCallable, BadTarget.
    """
    if type(fn) in (list, tuple):
        return type(fn)(allow_in_graph(one) for one in fn)
    return _opaque("armature.allow_in_graph", fn, ())


def trace_through(fn: F) -> F:
    """Record calls of this function as one node each; the graph's compiler then traces through it, at ATen level.

    For Python that the front end can't follow and that computes on its arguments only: tensors, constants, containers
    of them, and objects of classes registered with torch.utils._pytree. Its result consists of the same. Anything else
    it reads (globals, closures) counts as constant. Returns the function. Errors: NotCallable, BadTarget.
    """
    return _opaque("armature.trace_through", fn, (call_opaque,))


def _opaque(call: str, fn: F, handlers: tuple[Callable[..., Any], ...]) -> F:
    if not callable(fn):
        raise not_callable(call, fn)
    target = original(fn)
    target = target.__func__ if type(target) in (MethodType, staticmethod) else target
    check_target(call, target, Decision.IN_GRAPH)
    user = manager().user
    origin = called_from()

    def rows(priority: int) -> UserRows:
        rule = Rule(target, Decision.IN_GRAPH, f"{call} at {place(origin)}", priority, origin=origin)
        # The handler precedes the rule that comes with it.
        made = tuple(Handler((target,), handler, priority + 1) for handler in handlers)
        return UserRows((call, id(target)), (rule,), made)

    if not any(rows.about == (call, id(target)) for rows in user.declared):
        change(lambda: user.add(rows))
    return fn


def substitute(fn: Callable[..., Any], *, check_signature: bool = True) -> Callable[[F], F]:
    """A decorator: the decorated plain Python function is traced wherever `fn` is called in compiled code.

    It must return what `fn` returns for all arguments. check_signature: reject it if its parameters differ. Errors:
    NotCallable, BadTarget, SignatureMismatch.
    """
    if not callable(fn):
        raise not_callable("armature.substitute", fn)
    if not isinstance(check_signature, bool):
        call = "armature.substitute"
        raise WrongArgument(name="check_signature", value=check_signature, expected="True or False", call=call)
    stands_for = original(fn)
    if found := refusal(stands_for, Decision.SKIP):
        raise BadTarget(call="armature.substitute", target=name_of(fn), problem=found[0], fix=found[1])

    def decorate(replacement: F) -> F:
        if not isinstance(replacement, FunctionType):
            what = f"{replacement!r:.80}"
            problem, fix = "a polyfill is a Python function", "Put @armature.substitute(...) above a def."
            raise BadTarget(call="armature.substitute", target=what, problem=problem, fix=fix)
        if replacement is stands_for:
            problem, fix = "it is what it should stand for", "Write a function of its own that does the same."
            raise BadTarget(call="armature.substitute", target=name_of(fn), problem=problem, fix=fix)
        if check_signature:
            _check_signature(stands_for, replacement)
        user = manager().user
        polyfill = functools.partial(Polyfill, stands_for, replacement)
        change(lambda: user.add(lambda priority: UserRows(stands_for, polyfills=(polyfill(priority),))))
        return replacement

    return decorate


def _check_signature(fn: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """Raise SignatureMismatch if a call that fits one does not fit the other. Some C functions have no signature to
    compare."""
    try:
        wanted = inspect.signature(fn)
    except (ValueError, TypeError):
        return
    given = inspect.signature(replacement)
    if problem := difference(wanted, given):
        raise SignatureMismatch(
            original=name_of(fn),
            wanted=_plain(wanted),
            replacement=name_of(replacement),
            given=_plain(given),
            problem=problem,
            name=replacement.__name__ if replacement.__name__.isidentifier() else "f",
        )


def difference(wanted: inspect.Signature, given: inspect.Signature) -> str:
    """How two signatures differ for callers, "" if they do not. Annotations are ignored."""
    ours, theirs = list(given.parameters.values()), list(wanted.parameters.values())
    if len(ours) != len(theirs):
        return f"it has {len(ours)} parameters, not {len(theirs)}"
    for mine, other in zip(ours, theirs, strict=True):
        by_name = other.kind in (other.POSITIONAL_OR_KEYWORD, other.KEYWORD_ONLY)
        if by_name and mine.name != other.name:
            return f"{mine.name!r} stands where {other.name!r} should"
        # A parameter that accepts a name too accepts every positional-only call.
        if mine.kind != other.kind and (other.kind, mine.kind) != (other.POSITIONAL_ONLY, other.POSITIONAL_OR_KEYWORD):
            return f"{mine.name!r} is {mine.kind.description}, not {other.kind.description}"
        if (mine.default is mine.empty) != (other.default is other.empty) or not _same(mine.default, other.default):
            return f"the default of {mine.name!r} differs"
    return ""


def _same(left: object, right: object) -> bool:
    return left is right or (type(left) is type(right) and repr(left) == repr(right))


def _plain(signature: inspect.Signature) -> str:
    """The signature without annotations."""
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(plain))
