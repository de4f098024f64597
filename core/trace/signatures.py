"""Checks the arguments of C functions, because the code that replaces such a function may accept more than it does.

Plugins supply the parameters that functions do not report themselves (`Signature`).
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Collection, Iterable
from types import FunctionType, MethodDescriptorType, ModuleType, WrapperDescriptorType
from typing import Any

import attrs

from armature.introspection import is_written_in_c

ANY = "**"
Kind = inspect._ParameterKind
METHODS = (MethodDescriptorType, WrapperDescriptorType)


@attrs.frozen(eq=False)
class Signature:
    """The parameters of a C function for which `inspect.signature` fails; or a module, and the arguments of all that
    it has in C are checked.

    keywords: the names that it takes, `("**",)` for any name; None: those that `inspect` finds. counts: the minimum and
    maximum number of positional arguments, including self for a method; None: what `inspect` finds, or any number.
    """

    fn: Callable[..., object] | ModuleType
    keywords: tuple[str, ...] | None = None
    counts: tuple[int, float] | None = None
    priority: int = 0


def refuses(
    fn: Callable[..., Any], positional: int, names: Iterable[str], row: Signature | None, modules: Collection[str]
) -> bool:
    """Whether a C function or method raises TypeError for this many arguments and these keywords.

    positional: the number of other arguments. row: the plugins' `Signature` of the function. modules: the names of
    those for which plugins have a row; False for functions of others.
    """
    if _module_of(fn) not in modules:
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


def takes(
    fn: Any, positional: int, names: Iterable[str] = (), row: Signature | None = None, modules: Collection[str] = ()
) -> bool:
    """Whether a function takes this many arguments and keywords of these names; True if that is unknown."""
    if type(fn) is not FunctionType:
        return not refuses(fn, positional, names, row, modules)
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


def _module_of(fn: Any) -> str | None:
    """The module of a function or method written in C; None if it is not, or unknown."""
    return _module_of_method(fn) if type(fn) in METHODS else _module_of_function(fn)


@functools.lru_cache(maxsize=4096)
def _module_of_method(method: Any) -> str | None:
    return _module_of_class(method.__objclass__)


def _module_of_class(kind: type) -> str | None:
    return kind.__module__ if is_written_in_c(kind) else None


def _module_of_function(fn: Any) -> str | None:
    if not is_written_in_c(fn):
        return None
    owner = getattr(fn, "__objclass__", None)
    if isinstance(fn, type) or owner is not None:
        return _module_of_class(fn if owner is None else owner)
    home = getattr(fn, "__self__", None)  # the class, for a static method or class method
    module = home.__module__ if isinstance(home, type) else getattr(fn, "__module__", None)
    return module if isinstance(module, str) and callable(fn) else None


@functools.lru_cache(maxsize=1024)
def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (ValueError, TypeError):
        return None
