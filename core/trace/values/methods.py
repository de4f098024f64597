"""Calls of what stands in the tables of methods and builtins."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from armature.trace.values.base import Args, Kwargs, Value

if TYPE_CHECKING:
    from armature.trace.values.base import Tracing


def check_call(tracer: Tracing, fn: Callable[..., Any], positional: int, kwargs: Kwargs, name: str) -> None:
    """Break the graph where a function in C refuses so many arguments, or these keywords: Python knows what to say."""
    if type(fn) is not FunctionType and not tracer.python.takes(fn, positional, kwargs):
        tracer.graph_break("function-arguments", function=name)


def invoke(tracer: Tracing, fn: Callable[..., Any], name: str, owner: Args, args: Args, kwargs: Kwargs) -> Value | None:
    """`fn(tracer, *owner, *args, **kwargs)`; arguments that do not fit break the graph: Python knows what to say."""
    try:
        found: Value | None = fn(tracer, *owner, *args, **kwargs)
    except TypeError:
        if fits(fn, (tracer, *owner, *args), kwargs):
            raise  # an error of the tracer's own
        tracer.graph_break("method-arguments" if owner else "function-arguments", function=name)
    return found


def fits(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> bool:
    """Whether a function takes these arguments."""
    try:
        inspect.signature(fn).bind(*args, **kwargs)
    except TypeError:
        return False
    return True
