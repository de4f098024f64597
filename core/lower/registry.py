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
from armature.lower.values import ScalarValue

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__armature_lowerings__"
# Words of annotations that don't accept symbolic sizes, and of those that accept floats known only when the graph runs.
_NUMBERS = frozenset({"int", "float", "Number", "None", "Sequence", "ScalarValue"})
_SCALARS = frozenset({"Scalar", "ScalarValue"})
_SYMBOLIC = (Size, Sum, Product, FloorDiv, Mod)


def lowers(*ops: torch._ops.OpOverload, priority: int = 0) -> Callable[[F], F]:
    """Mark `fn(builder, *args, **kwargs)` as the lowering of the operators; `collect_lowerings` finds it.

    The arguments are the operator's, with `TensorValue` for a tensor. It returns a TensorValue (a tuple for several
    results), or None to decline: the operator then stays an ATen call. So it does if an argument is a symbolic number
    and its parameter is annotated as an int or float, not as an `Index` or `Scalar`; or if an argument is a float that
    is only known when the graph runs, and its parameter is not annotated as a `Scalar` or `ScalarValue`.
    """

    def mark(fn: F) -> F:
        rows = [Lowering(op, fn, priority) for op in ops]
        setattr(fn, _MARK, [*getattr(fn, _MARK, []), *rows])
        return fn

    return mark


def takes(fn: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Whether a lowering accepts these arguments: numbers that change only where its signature says so."""
    if not _has((*args, *kwargs.values()), (*_SYMBOLIC, ScalarValue)):
        return True
    signature = _signature(fn)
    given = signature.bind(None, *args, **kwargs).arguments
    words = {name: set(re.findall(r"\w+", str(signature.parameters[name].annotation))) for name in given}
    return not any(
        (_has(value, _SYMBOLIC) and words[name] <= _NUMBERS)
        or (_has(value, (ScalarValue,)) and words[name].isdisjoint(_SCALARS))
        for name, value in given.items()
    )


def _has(value: object, kinds: tuple[type, ...]) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has(item, kinds) for item in value)
    return isinstance(value, kinds)


_signature = functools.cache(inspect.signature)


def collect_lowerings(*modules: ModuleType) -> Iterable[Lowering]:
    """The lowerings of the modules: marked functions in order of definition, then the rows of `LOWERINGS`."""
    for module in modules:
        for obj in tuple(vars(module).values()):
            if getattr(obj, "__module__", None) == module.__name__:
                yield from getattr(obj, _MARK, ())
        yield from getattr(module, "LOWERINGS", ())
