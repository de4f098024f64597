"""Binds arguments to parameters as CPython does. Where they don't fit, CPython itself words the error."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

from armature.trace.base import Args, Kwargs, Value
from armature.trace.values.function import ClosureValue, FunctionValue
from armature.trace.values.mapping import namespace_of
from armature.trace.values.sequence import TupleValue

if TYPE_CHECKING:
    from armature.trace.base import Tracing

Function = FunctionValue | ClosureValue


def nothing() -> None:
    """Does nothing."""


def bind(tracer: Tracing, code: CodeType, function: Function, args: Args, kwargs: Kwargs) -> dict[str, Value]:
    """Map parameters to values. Raises TypeError of the program when the arguments do not fit."""
    names = code.co_varnames
    positional = code.co_argcount
    bound: dict[str, Value] = dict(zip(names[:positional], args))
    total = positional + code.co_kwonlyargcount
    extra = bind_keywords(code, bound, kwargs) if kwargs else {}
    if len(bound) < total and extra is not None:
        fill_defaults(tracer, code, function, bound)
    several, any_name = code.co_flags & inspect.CO_VARARGS, code.co_flags & inspect.CO_VARKEYWORDS
    if extra is None or len(bound) < total or (len(args) > positional and not several) or (extra and not any_name):
        refuse(tracer, code, function, args, kwargs)
    if several:
        bound[names[total]] = TupleValue(list(args[positional:]))
        total += 1
    if any_name:
        bound[names[total]] = namespace_of(tracer, extra or {})
    return bound


def bind_keywords(code: CodeType, bound: dict[str, Value], kwargs: Mapping[str, Value]) -> dict[str, Value] | None:
    """Bind keyword arguments; returns those that match no parameter, for `**`. None if a parameter has two values."""
    by_name = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    named = {name: value for name, value in kwargs.items() if name in by_name}
    if not named.keys().isdisjoint(bound):
        return None
    bound.update(named)
    return {name: value for name, value in kwargs.items() if name not in named}


def default_count(function: Function) -> int:
    """How many positional parameters have a default."""
    return len(function.defaults) if isinstance(function, ClosureValue) else len(function.fn.__defaults__ or ())


def fill_defaults(tracer: Tracing, code: CodeType, function: Function, bound: dict[str, Value]) -> None:
    """Bind parameters without an argument to their defaults, if they have any."""
    positional = code.co_varnames[: code.co_argcount]
    first = code.co_argcount - default_count(function)
    for position, name in enumerate(positional[first:]):
        if name not in bound:
            bound[name] = function.default(tracer, position)
    for name in code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]:
        default = None if name in bound else function.keyword_default(tracer, name)
        if default is not None:
            bound[name] = default


def refuse(tracer: Tracing, code: CodeType, function: Function, args: Args, kwargs: Kwargs) -> None:
    """Raise, in the program, the error of a function with the same parameters that is given these arguments."""
    flags = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    total = code.co_argcount + code.co_kwonlyargcount
    stand_in = FunctionType(
        nothing.__code__.replace(
            co_argcount=code.co_argcount,
            co_posonlyargcount=code.co_posonlyargcount,
            co_kwonlyargcount=code.co_kwonlyargcount,
            co_nlocals=total + flags.bit_count(),
            co_varnames=code.co_varnames[: total + flags.bit_count()],
            co_flags=nothing.__code__.co_flags | flags,
        ),
        {},
        argdefs=(None,) * default_count(function),
    )
    optional = [name for name in code.co_varnames[code.co_argcount : total] if function.keyword_default(tracer, name)]
    stand_in.__kwdefaults__ = dict.fromkeys(optional)
    stand_in.__qualname__ = function.get_attribute(tracer, "__qualname__").as_constant()
    try:
        stand_in(*args, **kwargs)
    except TypeError as error:
        tracer.raise_real(error)
