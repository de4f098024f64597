"""A guard in words: what must hold, and the user's line that relies on it."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable
from typing import Any

from armature.frame.guards.kinds import (
    AbsentGuard,
    AliasGuard,
    DictKeysGuard,
    GlobalStateGuard,
    Guard,
    IdGuard,
    LengthGuard,
    NoAliasGuard,
    ShapeGuard,
    TensorGuard,
    TypeGuard,
    ValueGuard,
)

_GLOBAL_STATE = "grad mode, autocast, default dtype, determinism, thread count and function modes are unchanged"


def describe(guard: Guard) -> str:
    """One line, with the user's line at its end where it is known."""
    words = _WORDS[type(guard)](guard)
    return f"{words}    ({guard.user})" if guard.user else words


def _tensor(guard: TensorGuard) -> str:
    example: Any = guard.example
    dtype = str(example.dtype).removeprefix("torch.")
    sizes = ", ".join("any" if size is None else str(size) for size in guard.sizes)
    strides = ", ".join("any" if stride is None else str(stride) for stride in guard.strides)
    grad = ", requires grad" if example.requires_grad else ""
    return f"{guard.source.expr} is a tensor {dtype}[{sizes}] with strides ({strides}) on {example.device}{grad}"


def _no_alias(guard: NoAliasGuard) -> str:
    return f"no two of these are one tensor: {', '.join(source.expr for source in guard.sources)}"


def _shape(guard: ShapeGuard) -> str:
    expr = guard.expr
    for name, quantity in sorted(guard.names, key=lambda item: -len(item[0])):
        expr = re.sub(rf"\b{re.escape(name)}\b", lambda _, text=quantity.expr: text, expr)  # type: ignore[misc]
    return expr


def _name(obj: object) -> str:
    qualname = getattr(obj, "__qualname__", None)
    return qualname if isinstance(qualname, str) else reprlib.repr(obj)


_WORDS: dict[type, Callable[[Any], str]] = {
    TypeGuard: lambda g: f"type({g.source.expr}) is {g.type_.__qualname__}",
    IdGuard: lambda g: f"{g.source.expr} is the same object: {_name(g.obj)}",
    ValueGuard: lambda g: f"{g.source.expr} == {g.value!r}",
    TensorGuard: _tensor,
    LengthGuard: lambda g: f"len({g.source.expr}) == {g.length}",
    DictKeysGuard: lambda g: f"list({g.source.expr}) == {reprlib.repr(list(g.keys))}",
    AbsentGuard: lambda g: f"{g.name!r} is not in {g.source.expr}",
    AliasGuard: lambda g: f"{g.first.expr} is {g.second.expr}",
    NoAliasGuard: _no_alias,
    GlobalStateGuard: lambda g: _GLOBAL_STATE,
    ShapeGuard: _shape,
}
