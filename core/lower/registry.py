"""How plugins declare lowerings: functions marked with `@lowers`, collected by module."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

import torch

from armature.graph.data import Lowering
from armature.lower.index import FloorDiv, Mod, Product, Size, Sum

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__armature_lowerings__"
_NUMBERS = frozenset({"int", "float", "Number", "None", "Sequence"})  # words of annotations that don't accept symbols
_SYMBOLIC = (Size, Sum, Product, FloorDiv, Mod)


def lowers(*ops: torch._ops.OpOverload, priority: int = 0) -> Callable[[F], F]:
    """Mark `fn(builder, *args, **kwargs)` as the lowering of the operators; `collect_lowerings` finds it.

    The arguments are the operator's, with `TensorValue` for a tensor. It returns a TensorValue (a tuple for several
    results), or None to decline: the operator then stays an ATen call. So it does if an argument is a symbolic number
    and its parameter is annotated as an int or float, not as an `Index`.
    """

    def mark(fn: F) -> F:
        rows = [Lowering(op, fn, priority) for op in ops]
        setattr(fn, _MARK, [*getattr(fn, _MARK, []), *rows])
        return fn

    return mark


def takes(fn: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Whether a lowering accepts these arguments: symbolic numbers only where its signature says so."""
    if not any(map(_changes, (*args, *kwargs.values()))):
        return True
    signature = _signature(fn)
    given = signature.bind(None, *args, **kwargs).arguments
    wants = (str(signature.parameters[name].annotation) for name, value in given.items() if _changes(value))
    return not any(_NUMBERS.issuperset(re.findall(r"\w+", text)) for text in wants)


def _changes(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_changes, value))
    return isinstance(value, _SYMBOLIC)


_signature = functools.cache(inspect.signature)


def collect_lowerings(*modules: ModuleType) -> Iterable[Lowering]:
    """The lowerings of the modules: marked functions in order of definition, then the rows of `LOWERINGS`."""
    for module in modules:
        for obj in tuple(vars(module).values()):
            if getattr(obj, "__module__", None) == module.__name__:
                yield from getattr(obj, _MARK, ())
        yield from getattr(module, "LOWERINGS", ())
