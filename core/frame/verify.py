"""The spec of a frame request, for strict mode."""

from __future__ import annotations

import inspect
from types import CellType

from armature.errors import invariant
from armature.frame.data import FrameRequest


def verify(request: FrameRequest) -> None:
    """Check that all arguments and cells are present. Errors: InvariantError."""
    code = request.code
    invariant(
        len(request.closure) == len(code.co_freevars),
        "a frame has one cell per free variable",
        cells=len(request.closure),
        names=code.co_freevars,
    )
    for name, cell in zip(code.co_freevars, request.closure):
        invariant(isinstance(cell, CellType), "the closure holds cells", name=name, found=type(cell).__name__)
        invariant(request.locals.get(name) is cell, "a free variable's local is its cell", name=name)
    for name in _arguments(request):
        invariant(name in request.locals, "each argument has a value", name=name, function=code.co_qualname)


def _arguments(request: FrameRequest) -> tuple[str, ...]:
    code = request.code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]
