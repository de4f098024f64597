"""How a plugin writes lowerings: functions that bear `@lowers`, collected by module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, TypeVar

import torch

from armature.graph.data import Lowering

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__armature_lowerings__"


def lowers(*ops: torch._ops.OpOverload, priority: int = 0) -> Callable[[F], F]:
    """Mark `fn(builder, *args, **kwargs)` as the lowering of the operators; `collect_lowerings` finds it.

    The arguments are the operator's, with `TensorValue` for a tensor. Returns a TensorValue (a tuple for several
    results), or None
    for "not in this case": the operator stays an ATen call.
    """

    def mark(fn: F) -> F:
        rows = [Lowering(op, fn, priority) for op in ops]
        setattr(fn, _MARK, [*getattr(fn, _MARK, []), *rows])
        return fn

    return mark


def collect_lowerings(*modules: ModuleType) -> Iterable[Lowering]:
    """The lowerings of the modules: marked functions in the order in which they stand, then the rows of `LOWERINGS`."""
    for module in modules:
        for obj in tuple(vars(module).values()):
            if getattr(obj, "__module__", None) == module.__name__:
                yield from getattr(obj, _MARK, ())
        yield from getattr(module, "LOWERINGS", ())
