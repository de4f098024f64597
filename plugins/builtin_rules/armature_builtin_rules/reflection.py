"""Functions of the standard library that inspect the program: evaluated while tracing on known objects."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import logging
from collections.abc import Callable
from types import FunctionType, MethodType

from armature.plugin_api import (
    AttrSource,
    Call,
    ClosureValue,
    DictOfSource,
    ItemSource,
    NotConstant,
    Source,
    Tracing,
    Value,
    handles,
    object_source,
)

LEVELS: dict[Callable[..., object], int] = {
    logging.Logger.debug: logging.DEBUG,
    logging.Logger.info: logging.INFO,
    logging.Logger.warning: logging.WARNING,
    logging.Logger.error: logging.ERROR,
    logging.Logger.critical: logging.CRITICAL,
}

# the attribute of a function that makes another one's signature its own
SAYS_OTHERWISE = frozenset({"__signature__", "__wrapped__"})
ASKED = ("isEnabledFor", "getEffectiveLevel")


def stub(function: ClosureValue) -> FunctionType:
    """A function with the parameters of one made in the frame. Raises NotConstant."""
    code = function.code.replace(co_freevars=(), co_flags=function.code.co_flags & ~inspect.CO_NESTED)
    made = FunctionType(code, {}, None, tuple(value.as_constant() for value in function.defaults))
    made.__kwdefaults__ = {name: value.as_constant() for name, value in function.keyword_defaults.items()}
    return made


def rely_on_parameters(tracer: Tracing, real: FunctionType, source: Source) -> None:
    """Guard everything that determines a function's signature: its code, and the identity of defaults and
    annotations."""
    tracer.guards.same(AttrSource(source, "__code__"), real.__code__)
    held = {name: getattr(real, name) for name in ("__defaults__", "__kwdefaults__", "__annotations__")}
    for name, found in held.items():
        where = AttrSource(source, name)
        tracer.guards.type_is(where, type(found))
        if isinstance(found, dict):
            tracer.guards.keys(where, found)
        elif found is not None:
            tracer.guards.length(where, len(found))
        items = found.items() if isinstance(found, dict) else enumerate(found or ())
        for key, item in items:
            tracer.guards.same(ItemSource(where, key), item)
    for name in SAYS_OTHERWISE:
        tracer.guards.absent(DictOfSource(source), name)


@handles(inspect.getfullargspec)
def full_signature(call: Call, func: Value) -> Value | None:
    """The parameters of a function of the program, by name and kind."""
    return None if isinstance(func, ClosureValue) else signature(call, func)


@handles(inspect.signature)
def signature(call: Call, fn: Value, **options: Value) -> Value | None:
    """The signature of a function or method of the program."""
    if options or not issubclass(fn.python_type(), (FunctionType, MethodType)):
        return None
    if isinstance(fn, ClosureValue):
        try:
            return call.new_value(inspect.signature(stub(fn)))
        except NotConstant:
            return None
    bound = issubclass(fn.python_type(), MethodType)
    function = call.tracing.python.attribute_or_none(fn, "__func__") if bound else fn
    if function is None:
        return None
    real = getattr(function, "fn", None)
    if not isinstance(real, FunctionType) or not SAYS_OTHERWISE.isdisjoint(real.__dict__):
        return None
    call.guard(function)
    rely_on_parameters(call.tracing, real, function.source or object_source(real))
    return call.new_value(call.fn(MethodType(real, call) if bound else real))


@handles(inspect.get_annotations)
def annotations_as_written(call: Call, obj: Value, **options: Value) -> Value | None:
    """The annotations of a function, unevaluated. inspect also reads the function's globals, but only to evaluate
    annotations that are strings."""
    plain = all(value.is_constant and not value.as_constant() for value in options.values())
    if not plain or not issubclass(obj.python_type(), (FunctionType, MethodType)):
        return None
    held = call.tracing.python.attribute_or_none(obj, "__annotations__")
    return None if held is None else call.inline(dict, held)


@handles(importlib.util.find_spec, importlib.metadata.version)
def installed(call: Call, name: Value, *more: Value) -> Value | None:
    """Whether a package is installed, and which version: this does not change while a program runs."""
    if not all(value.is_constant for value in (name, *more)):
        return None
    try:
        found = call.fn(*(value.as_constant() for value in (name, *more)))
    except (ImportError, ValueError) as error:
        call.tracing.raise_real(error)
    return call.new_value(found)


@handles(*LEVELS)
def log(call: Call, logger: Value, *args: Value, **kwargs: Value) -> Value | None:
    """Log a message: it has no effect if the logger drops messages of its level, which is guarded."""
    real = getattr(logger, "obj", None)
    if not isinstance(real, logging.Logger) or logger.source is None:
        return None
    enabled = is_enabled(call.tracing, real, logger.source, LEVELS[call.fn])
    return call.constant(None) if enabled is False else None


@handles(logging.Logger.isEnabledFor)
def asks_level(call: Call, logger: Value, level: Value) -> Value | None:
    """Whether a logger drops messages of a level; guarded."""
    real = getattr(logger, "obj", None)
    known = level.python_type() is int and (level.is_constant or level.is_symbolic)
    if not isinstance(real, logging.Logger) or logger.source is None or not known:
        return None
    enabled = is_enabled(call.tracing, real, logger.source, level.as_constant())
    return None if enabled is None else call.constant(enabled)


@handles(logging.getLogger)
def get_logger(call: Call, name: Value) -> Value | None:
    """The logger of this name. A missing one is created while tracing, as the call would do; its identity is
    guarded."""
    text = name.as_constant() if name.is_constant else None
    if type(text) is not str or text in ("", "root"):
        return None
    held, tracer = logging.Logger.manager, call.tracing
    plain = held.loggerClass is None and logging.getLoggerClass() is logging.Logger
    if type(held) is not logging.Manager or not (plain or isinstance(held.loggerDict.get(text), logging.Logger)):
        return None
    loggers = AttrSource(AttrSource(object_source(logging.Logger), "manager"), "loggerDict")
    return tracer.objects.wrap(logging.getLogger(text), ItemSource(loggers, text))


def is_enabled(tracer: Tracing, real: logging.Logger, source: Source, level: int) -> bool | None:
    """The logger's decision about a level, with guards on everything it depends on. None if the program's code takes
    part."""
    if any(getattr(type(real), name) is not getattr(logging.Logger, name) for name in ASKED) or changes_logging(tracer):
        return None
    tracer.guards.equal(AttrSource(source, "disabled"), real.disabled)
    tracer.guards.equal(AttrSource(AttrSource(source, "manager"), "disable"), real.manager.disable)
    owner: logging.Logger | None = real
    while owner is not None:
        tracer.guards.equal(AttrSource(source, "level"), owner.level)
        if owner.level:
            break
        source, owner = AttrSource(source, "parent"), owner.parent
        tracer.guards.same(source, owner)
    return real.isEnabledFor(level)


def changes_logging(tracer: Tracing) -> bool:
    """Whether the frame has changed a logger, or the attributes of some object read as a dict."""
    kinds = (logging.Filterer, logging.Manager, dict)
    return any(issubclass(value.python_type(), kinds) and value.source is not None for value in tracer.effects.changed)
