"""Functions of the standard library that look at the program itself: run while tracing on what tracing knows."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import logging
from types import FunctionType, MethodType
from typing import Any

from armature.plugin_api import Call, ClosureValue, NotConstant, Value, handles

LEVELS = {
    logging.Logger.debug: logging.DEBUG,
    logging.Logger.info: logging.INFO,
    logging.Logger.warning: logging.WARNING,
    logging.Logger.error: logging.ERROR,
    logging.Logger.critical: logging.CRITICAL,
}


def stub(function: ClosureValue) -> FunctionType:
    """A function with the parameters of one that the frame has made. Raises NotConstant."""
    code = function.code.replace(co_freevars=(), co_flags=function.code.co_flags & ~inspect.CO_NESTED)
    made = FunctionType(code, {}, None, tuple(value.as_constant() for value in function.defaults))
    made.__kwdefaults__ = {name: value.as_constant() for name, value in function.keyword_defaults.items()}
    return made


@handles(inspect.signature)
def signature(call: Call, fn: Value, **options: Value) -> Value | None:
    """The signature of a function of the program, or of a method of it."""
    if options or not issubclass(fn.python_type(), (FunctionType, MethodType)):
        return None
    if isinstance(fn, ClosureValue):
        try:
            return call.new_value(inspect.signature(stub(fn)))
        except NotConstant:
            return None
    bound = issubclass(fn.python_type(), MethodType)
    function = call.tracer.attribute_or_none(fn, "__func__") if bound else fn
    real: Any = None if function is None else getattr(function, "fn", None)
    if not isinstance(real, FunctionType):
        return None
    call.guard(function)  # type: ignore[arg-type]
    return call.new_value(inspect.signature(MethodType(real, call) if bound else real))


@handles(importlib.util.find_spec, importlib.metadata.version)
def installed(call: Call, name: Value, *more: Value) -> Value | None:
    """Whether a package is installed, and which version: that does not change while a program runs."""
    if not all(value.is_constant for value in (name, *more)):
        return None
    try:
        found = call.fn(*(value.as_constant() for value in (name, *more)))
    except (ImportError, ValueError) as error:
        call.tracer.raise_real(error)
    return call.new_value(found)


@handles(*LEVELS)
def log(call: Call, logger: Value, *args: Value, **kwargs: Value) -> Value | None:
    """A message of a level that the logger drops is nothing; that it drops it is guarded."""
    real = getattr(logger, "obj", None)
    if not isinstance(real, logging.Logger) or logger.source is None:
        return None
    level = LEVELS[call.fn]  # type: ignore[index]
    if real.isEnabledFor(level):
        return None
    tracer, owner, source = call.tracer, real, logger.source
    manager = tracer.attr_source(source, "manager")
    tracer.wrap(real.manager.disable, tracer.attr_source(manager, "disable"))
    while owner is not None:
        tracer.wrap(owner.level, tracer.attr_source(source, "level"))
        if owner.level:
            break
        source = tracer.attr_source(source, "parent")
        owner = owner.parent  # type: ignore[assignment]
        tracer.guard_is(source, owner)
    return call.constant(None)
