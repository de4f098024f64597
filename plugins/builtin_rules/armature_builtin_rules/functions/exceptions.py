"""How exception groups are made. Splitting them (`split`, `subgroup`, `except*`) breaks the graph."""

from __future__ import annotations

from armature.plugin_api import (
    Args,
    Call,
    ClassValue,
    ExceptionValue,
    ListValue,
    Tracing,
    TupleValue,
    Value,
    handles,
)


def make_group(tracer: Tracing, cls: type[BaseExceptionGroup], args: Args) -> ExceptionValue:
    """`cls(message, exceptions)`. Invalid arguments break the graph."""
    found = tracer.unpack(args[1]) if len(args) == 2 and isinstance(args[1], (ListValue, TupleValue)) else []
    members = [item for item in found if isinstance(item, ExceptionValue)]
    plain = all(issubclass(member.kind, Exception) for member in members)
    fits = args and args[0].python_type() is str and members and len(members) == len(found)
    if not fits or (issubclass(cls, Exception) and not plain):
        tracer.graph_break("exception-group-arguments", type=cls.__qualname__)
    kind = ExceptionGroup if cls is BaseExceptionGroup and plain else cls
    return ExceptionValue(kind, [args[0], ListValue(list(members))])


@handles(BaseExceptionGroup.__new__)
def make(call: Call, cls: Value, /, *args: Value) -> Value:
    """`cls(message, exceptions)`."""
    if not isinstance(cls, ClassValue) or not issubclass(cls.cls, BaseExceptionGroup):
        call.graph_break("exception-group-arguments", type=cls.describe())
    return make_group(call.tracing, cls.cls, args)
