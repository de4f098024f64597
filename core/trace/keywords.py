"""Keyword arguments that functions of Python written in C refuse. What stands in for these has names of its own."""

from __future__ import annotations

import builtins
import collections
import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Iterable
from types import FunctionType, MappingProxyType
from typing import Any

from armature.callables import is_written_in_c

ANY = "**"
# Of those that do not tell their signature; all others of them take none.
BY_NAME: dict[Any, tuple[str, ...]] = {
    int: ("base",), bytes: ("source", "encoding", "errors"), str: ("object", "encoding", "errors"), type: (ANY,),
    dict: (ANY,), collections.OrderedDict: (ANY,), collections.defaultdict: (ANY,), functools.partial: (ANY,),
    dict.update: (ANY,), collections.OrderedDict.update: (ANY,), zip: ("strict",), min: ("key", "default"),
    max: ("key", "default"), MappingProxyType: ("mapping",), itertools.zip_longest: ("fillvalue",),
    itertools.product: ("repeat",), functools.cmp_to_key: ("mycmp",), builtins.__build_class__: (ANY,),
    list.__init__: (), set.__init__: (), functools.partialmethod: (ANY,), bytes.hex: ("sep", "bytes_per_sep"),
    itertools.repeat: ("object", "times"), collections.deque: ("iterable", "maxlen"), str.format: (ANY,),
    collections.OrderedDict.pop: ("key", "default"), operator.methodcaller: (ANY,),
}  # fmt: skip
HOMES = frozenset({
    "builtins", "itertools", "_heapq", "_bisect",
    "_functools", "functools", "_operator", "operator", "math", "_collections", "collections",
})  # fmt: skip


def refuses(fn: Callable[..., Any], positional: int, names: Iterable[str]) -> bool:
    """Whether a function or method in C, of Python itself, raises TypeError for keyword arguments of these names.

    positional: how many other arguments there are.
    """
    if not _is_pythons(fn):
        return False
    signature = _signature(fn)
    if signature is None:
        known = BY_NAME.get(fn, ())
        return ANY not in known and not set(names) <= set(known)
    names = tuple(names)
    if any(_is_positional(signature, name) for name in names):
        return True  # Python 3.13.0 would bind it
    try:
        signature.bind_partial(*[None] * positional, **dict.fromkeys(names))
    except TypeError:
        return True
    return False


def _is_positional(signature: inspect.Signature, name: str) -> bool:
    parameters = signature.parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return False
    return name in parameters and parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY


def _is_pythons(fn: Any) -> bool:
    if isinstance(fn, FunctionType):
        return False
    owner = getattr(fn, "__objclass__", None)
    if isinstance(fn, type) or owner is not None:
        kind = fn if owner is None else owner
        return kind.__module__ in HOMES and is_written_in_c(kind)
    home = getattr(fn, "__self__", None)  # a static method or class method of a type
    module = home.__module__ if isinstance(home, type) else getattr(fn, "__module__", None)
    return module in HOMES and callable(fn)


@functools.lru_cache(maxsize=1024)
def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    if fn in BY_NAME:
        return None
    try:
        return inspect.signature(fn)
    except (ValueError, TypeError):
        return None
