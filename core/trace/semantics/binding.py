"""Binds arguments to parameters as CPython does, and raises its errors in its order and words."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING

from armature.trace.base import Args, Kwargs, Value
from armature.trace.values.function import ClosureValue, FunctionValue
from armature.trace.values.mapping import namespace_of
from armature.trace.values.sequence import TupleValue

if TYPE_CHECKING:
    from armature.trace.base import Tracing

Function = FunctionValue | ClosureValue


def bind(tracer: Tracing, code: CodeType, function: Function, args: Args, kwargs: Kwargs) -> dict[str, Value]:
    """Map parameters to values. Raises TypeError of the program when the arguments do not fit."""
    names = code.co_varnames
    positional = code.co_argcount
    bound: dict[str, Value] = dict(zip(names[:positional], args))
    total = positional + code.co_kwonlyargcount
    extra = bind_keywords(tracer, code, function, bound, kwargs) if kwargs else {}
    if len(args) > positional and not code.co_flags & inspect.CO_VARARGS:
        too_many(tracer, code, function, len(args), bound)
    if len(bound) < total:
        fill_defaults(tracer, code, function, bound)
    if code.co_flags & inspect.CO_VARARGS:
        bound[names[total]] = TupleValue(list(args[positional:]))
        total += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        bound[names[total]] = namespace_of(tracer, extra)
    return bound


def bind_keywords(
    tracer: Tracing, code: CodeType, function: Function, bound: dict[str, Value], kwargs: Mapping[str, Value]
) -> dict[str, Value]:
    """Bind keyword arguments; returns those that match no parameter, for `**`."""
    extra: dict[str, Value] = {}
    by_name = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    for name, value in kwargs.items():
        if name in by_name:
            if name in bound:
                fail(tracer, function, f"got multiple values for argument '{name}'")
            bound[name] = value
        elif code.co_flags & inspect.CO_VARKEYWORDS:
            extra[name] = value
        else:
            hidden = [given for given in code.co_varnames[: code.co_posonlyargcount] if given in kwargs]
            if hidden:
                text = f"got some positional-only arguments passed as keyword arguments: '{', '.join(hidden)}'"
                fail(tracer, function, text)
            fail(tracer, function, f"got an unexpected keyword argument '{name}'")
    return extra


def default_count(function: Function) -> int:
    """How many positional parameters have a default."""
    return len(function.defaults) if isinstance(function, ClosureValue) else len(function.fn.__defaults__ or ())


def too_many(tracer: Tracing, code: CodeType, function: Function, given: int, bound: Mapping[str, Value]) -> None:
    """Raise the error of a call with more positional arguments than parameters."""
    most, defaults = code.co_argcount, default_count(function)
    keywords = code.co_varnames[most : most + code.co_kwonlyargcount]
    named = sum(name in bound for name in keywords)
    takes = f"from {most - defaults} to {most}" if defaults else str(most)
    plural = "" if most == 1 and not defaults else "s"
    gave = f"{given} {'was' if given == 1 and not named else 'were'} given"
    if named:
        gave = f"{given} positional argument{'' if given == 1 else 's'} (and {named} keyword-only argument"
        gave += f"{'' if named == 1 else 's'}) were given"
    fail(tracer, function, f"takes {takes} positional argument{plural} but {gave}")


def fill_defaults(tracer: Tracing, code: CodeType, function: Function, bound: dict[str, Value]) -> None:
    """Bind parameters without an argument to their defaults."""
    positional = code.co_varnames[: code.co_argcount]
    first = code.co_argcount - default_count(function)
    missing(tracer, function, "positional", [name for name in positional[:first] if name not in bound])
    for position, name in enumerate(positional[first:]):
        if name not in bound:
            bound[name] = function.default(tracer, position)
    lacking = []
    for name in code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]:
        default = None if name in bound else function.keyword_default(tracer, name)
        if default is not None:
            bound[name] = default
        elif name not in bound:
            lacking.append(name)
    missing(tracer, function, "keyword-only", lacking)


def missing(tracer: Tracing, function: Function, kind: str, names: Sequence[str]) -> None:
    """Raise the error of a call that lacks arguments, if any are missing."""
    if names:
        quoted = [f"'{name}'" for name in names]
        listed = quoted[0]
        if len(quoted) > 1:
            listed = f"{', '.join(quoted[:-1])}{',' if len(quoted) > 2 else ''} and {quoted[-1]}"
        plural = "" if len(names) == 1 else "s"
        fail(tracer, function, f"missing {len(names)} required {kind} argument{plural}: {listed}")


def fail(tracer: Tracing, function: Function, text: str) -> None:
    """Raise TypeError of the program, with the function's name in front of the text."""
    name = function.get_attribute(tracer, "__qualname__").as_constant()
    tracer.raise_error(TypeError, f"{name}() {text}")
