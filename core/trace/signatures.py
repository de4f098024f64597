"""Checks the arguments of C functions, because the code that replaces such a function may accept more than it does.

Plugins supply the parameters that functions do not report themselves (`Signature`).
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from types import FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import attrs

from armature.introspection import is_written_in_c

ANY = "**"
Kind = inspect._ParameterKind
METHODS = (MethodDescriptorType, WrapperDescriptorType)
HOMES = frozenset({
    "builtins", "itertools", "_heapq", "_bisect",
    "_functools", "functools", "_operator", "operator", "math", "_collections", "collections",
})  # fmt: skip


@attrs.frozen(eq=False)
class Signature:
    """The parameters of a C function for which `inspect.signature` fails.

    keywords: the names that it takes, `("**",)` for any name; None: those that `inspect` finds. counts: the minimum and
    maximum number of positional arguments, including self for a method; None: what `inspect` finds, or any number.
    """

    fn: Callable[..., object]
    keywords: tuple[str, ...] | None = None
    counts: tuple[int, float] | None = None
    priority: int = 0


def refuses(fn: Callable[..., Any], positional: int, names: Iterable[str], row: Signature | None = None) -> bool:
    """Whether a C function or method of Python itself raises TypeError for this many arguments and these keywords.

    positional: the number of other arguments. row: the plugins' `Signature` of the function.
    """
    if not _is_pythons(fn):
        return False
    names = tuple(names)
    if not names:
        least, most = (row and row.counts) or counts(fn)
        return not least <= positional <= most
    signature = _signature(fn) if row is None or row.keywords is None else None
    if signature is None:
        known = () if row is None else row.keywords or ()
        return ANY not in known and not set(names) <= set(known)
    if any(_is_positional(signature, name) for name in names):
        return True  # Python 3.13.0 would bind it
    return not _binds(signature, positional, names)


def takes(fn: Any, positional: int, names: Iterable[str] = (), row: Signature | None = None) -> bool:
    """Whether a function takes this many arguments and keywords of these names; True if that is unknown."""
    if type(fn) is not FunctionType:
        return not refuses(fn, positional, names, row)
    signature = _signature(fn)
    return signature is None or _binds(signature, positional, tuple(names))


@functools.lru_cache(maxsize=4096)
def counts(fn: Callable[..., Any]) -> tuple[int, float]:
    """The least and most positional arguments that a function takes, as far as that is known."""
    signature = _signature(fn)
    if signature is None:
        return 0, math.inf
    kinds = [(parameter.kind, parameter.default is parameter.empty) for parameter in signature.parameters.values()]
    plain = [needed for kind, needed in kinds if kind in (Kind.POSITIONAL_ONLY, Kind.POSITIONAL_OR_KEYWORD)]
    return sum(plain), math.inf if any(kind is Kind.VAR_POSITIONAL for kind, _ in kinds) else len(plain)


def _binds(signature: inspect.Signature, positional: int, names: tuple[str, ...]) -> bool:
    try:
        signature.bind(*[None] * positional, **dict.fromkeys(names))
    except TypeError:
        return False
    return True


def _is_positional(signature: inspect.Signature, name: str) -> bool:
    parameters = signature.parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return False
    return name in parameters and parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY


def _is_pythons(fn: Any) -> bool:
    return _is_method_of_python(fn) if type(fn) in METHODS else _is_function_of_python(fn)


@functools.lru_cache(maxsize=4096)
def _is_method_of_python(method: Any) -> bool:
    kind = method.__objclass__
    return kind.__module__ in HOMES and is_written_in_c(kind)


def _is_function_of_python(fn: Any) -> bool:
    if not is_written_in_c(fn):
        return False
    owner = getattr(fn, "__objclass__", None)
    if isinstance(fn, type) or owner is not None:
        kind = fn if owner is None else owner
        return kind.__module__ in HOMES and is_written_in_c(kind)
    home = getattr(fn, "__self__", None)  # the class, for a static method or class method
    module = home.__module__ if isinstance(home, type) else getattr(fn, "__module__", None)
    return module in HOMES and callable(fn)


@functools.lru_cache(maxsize=1024)
def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (ValueError, TypeError):
        return None
