"""Polyfills for functions of inspect that use untraceable reflection."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterable


class _Wrapping:
    __wrapped__ = None


UNWRAPS_CLASSES = inspect.unwrap(_Wrapping) is None  # until Python 3.13
LONG = 100  # length of a chain of wrappers that may reach Python's recursion limit


def unwrap(func: object, *, stop: Callable[[object], object] | None = None) -> object:
    """The function at the end of a chain of wrappers."""
    first, seen = func, {id(func): func}
    while (UNWRAPS_CLASSES or not isinstance(func, type)) and hasattr(func, "__wrapped__"):
        if stop is not None and stop(func):
            break
        func = func.__wrapped__
        if id(func) in seen or (len(seen) >= LONG and len(seen) >= sys.getrecursionlimit()):
            raise ValueError(f"wrapper loop when unwrapping {first!r}")
        seen[id(func)] = func
    return func


class _Missing:
    """Nothing was found."""


def _in_classes(classes: Iterable[type], name: str) -> object:
    """The raw member of the first class that has the name."""
    for kind in classes:
        if name in kind.__dict__:
            return kind.__dict__[name]
    return _Missing


def _own(obj: object, name: str) -> object:
    """The raw member of the object itself, whatever `__dict__` its class defines."""
    held = _in_classes(type(obj).__mro__, "__dict__")
    if held is not _Missing and not isinstance(held, types.GetSetDescriptorType | types.MemberDescriptorType):
        return _Missing
    try:
        return object.__getattribute__(obj, "__dict__").get(name, _Missing)
    except AttributeError:
        return _Missing


def getattr_static(obj: object, attr: str, default: object = _Missing) -> object:
    """A raw attribute: calls neither descriptors nor `__getattr__`."""
    kind = type(obj)
    is_class = issubclass(kind, type)
    own = _Missing if is_class else _own(obj, attr)
    found = _in_classes((obj if is_class and isinstance(obj, type) else kind).__mro__, attr)
    if found is _Missing and is_class:
        found = _in_classes(kind.__mro__, attr)
    if own is not _Missing and found is not _Missing:
        reads = type(found).__mro__
        if _in_classes(reads, "__get__") is _Missing or (
            _in_classes(reads, "__set__") is _Missing and _in_classes(reads, "__delete__") is _Missing
        ):
            return own
        return found
    for value in (own, found, default):
        if value is not _Missing:
            return value
    raise AttributeError(attr)


STAND_INS: tuple[tuple[Callable[..., object], Callable[..., object]], ...] = (
    (inspect.unwrap, unwrap),
    (inspect.getattr_static, getattr_static),
)
