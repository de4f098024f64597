"""A guard in words: what must hold, and the user's line that relies on it."""

from __future__ import annotations

import enum
import re
import reprlib
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from armature.frame.guards.kinds import (
    AbsentGuard,
    AliasGuard,
    AnswerGuard,
    AutogradGuard,
    ClassGuard,
    DictKeysGuard,
    FamilyGuard,
    GlobalStateGuard,
    Guard,
    IdGuard,
    LengthGuard,
    NoAliasGuard,
    OffsetGuard,
    PartsGuard,
    ShapeGuard,
    SlotGuard,
    StorageGuard,
    TensorGuard,
    TypeGuard,
    ValueGuard,
)
from armature.torch_abi.overrides import quietly

_GLOBAL_STATE = "grad mode, autocast, default dtype, determinism, thread count and function modes are unchanged"


def describe(guard: Guard) -> str:
    """One line, with the user's line at its end where it is known."""
    words = _WORDS[type(guard)](guard)
    return f"{words}    ({guard.user})" if guard.user else words


@quietly
def _tensor(guard: TensorGuard) -> str:
    return f"{guard.source.expr} is {described_tensor(guard.example, guard.sizes, guard.strides)}"


def described_tensor(tensor: Any, sizes: Sequence[int | None] = (), strides: Sequence[int | None] = ()) -> str:
    """`a tensor float32[2, any] with strides (2, 1) on cpu, requires grad`. sizes, strides: what is known of them."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    shown = ", ".join("any" if size is None else str(size) for size in sizes or tensor.shape)
    steps = ", ".join("any" if stride is None else str(stride) for stride in strides or tensor.stride())
    grad = ", requires grad" if tensor.requires_grad else ""
    return f"a tensor {dtype}[{shown}] with strides ({steps}) on {tensor.device}{grad}"


def _no_alias(guard: NoAliasGuard) -> str:
    return f"no two of these are one object: {', '.join(source.expr for source in guard.sources)}"


def _storage(guard: StorageGuard) -> str:
    names = [source.expr for source in guard.sources]
    if not guard.together:
        return f"no two of these share memory: {', '.join(names)}"
    pairs = ", ".join(f"{names[i]} and {names[j]} at {distance} bytes" for i, j, distance in guard.together)
    return f"of {', '.join(names)} these share memory: {pairs}"


def _family(guard: FamilyGuard) -> str:
    names = [source.expr for source in guard.sources]
    views, memories = (_groups(names, numbers) for numbers in zip(*guard.families))
    return f"of {', '.join(names)} these are views of one tensor: {views}; these are in one memory: {memories}"


def _groups(names: Sequence[str], numbers: Sequence[int]) -> str:
    """The names that have one number together, group by group."""
    groups = ([name for name, number in zip(names, numbers) if number == known] for known in sorted({*numbers}))
    return ", ".join(" and ".join(group) for group in groups if len(group) > 1) or "none"


def _autograd(guard: AutogradGuard) -> str:
    kind = "a leaf" if guard.leaf else "no leaf"
    return f"{guard.source.expr} is {kind} of autograd's graph{', and retains its gradient' if guard.retains else ''}"


def _class(guard: ClassGuard) -> str:
    names = f", and no attribute {', '.join(sorted(guard.names))} of its own" if guard.names else ""
    return f"{_name(guard.cls)} has the same bases{names}"


def _answer(guard: AnswerGuard) -> str:
    args = [*map(short, guard.args), *(f"{name}={value!r}" for name, value in guard.kwargs.items())]
    return f"{_name(guard.fn)}({', '.join(args)}) == {short(guard.answer)}"


def _shape(guard: ShapeGuard) -> str:
    expr = guard.expr
    texts = {name: quantity.expr for name, quantity in guard.names}
    names = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
    return re.sub(rf"\b(?:{names})\b", lambda found: texts[found[0]], expr) if texts else expr


def _name(obj: object) -> str:
    qualname = getattr(obj, "__qualname__", None)
    return qualname if isinstance(qualname, str) else short(obj)


def _shown(value: object) -> str:
    """The text of a value; nothing of the program is run for it."""
    own = isinstance(type(value).__repr__, FunctionType) and not issubclass(type(value), enum.Enum)
    return object.__repr__(value) if own else repr(value)


class _Short(reprlib.Repr):
    """Texts of which the middle is left out where they are long."""

    def repr_instance(self, x: object, level: int) -> str:
        text = _shown(x)
        keep = (self.maxother - 3) // 2
        return text if len(text) <= self.maxother else f"{text[:keep]}...{text[-keep:]}"


short = _Short().repr
"""The text of a value, shortened; nothing of the program is run for it."""


_WORDS: dict[type, Callable[[Any], str]] = {
    TypeGuard: lambda g: f"type({g.source.expr}) is {g.type_.__qualname__}",
    IdGuard: lambda g: f"{g.source.expr} is the same object: {_name(g.obj)}",
    ValueGuard: lambda g: f"{g.source.expr} == {_shown(g.value)}",
    TensorGuard: _tensor,
    PartsGuard: lambda g: (
        f"{g.source.expr} holds what it held: parts of the same names, with equal metadata, or the same members"
    ),
    LengthGuard: lambda g: f"len({g.source.expr}) == {g.length}",
    DictKeysGuard: lambda g: f"list({g.source.expr}) == {short(list(g.keys))}",
    AbsentGuard: lambda g: f"{_shown(g.name)} is not in {g.source.expr}",
    SlotGuard: lambda g: f"{g.source.expr}.{g.slot.__name__} is not set",
    ClassGuard: _class,
    AliasGuard: lambda g: f"{g.first.expr} is {g.second.expr}",
    NoAliasGuard: _no_alias,
    StorageGuard: _storage,
    FamilyGuard: _family,
    OffsetGuard: lambda g: f"{g.source.expr}.storage_offset() == {g.offset}",
    AutogradGuard: _autograd,
    GlobalStateGuard: lambda g: _GLOBAL_STATE,
    AnswerGuard: _answer,
    ShapeGuard: _shape,
}
