"""Exception groups: making them, and splitting them by `split`, `subgroup` and `except*`."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from armature.plugin_api import (
    Args,
    Call,
    CaughtValue,
    ClassValue,
    ExceptionValue,
    ListValue,
    Tracing,
    TupleValue,
    Value,
    handles,
    overrides,
)

Test = Callable[[ExceptionValue], bool]
Parts = tuple[ExceptionValue | None, ExceptionValue | None]
LINKS = ("__cause__", "__context__")


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


def members_of(group: ExceptionValue) -> list[ExceptionValue]:
    """The exceptions in a group."""
    members: Any = group.args[1]
    return [item for item in members.items if isinstance(item, ExceptionValue)]


def parts_of(tracer: Tracing, error: ExceptionValue, test: Test, keep_rest: bool = True) -> Parts:
    """The parts of an exception, which may be a group, that pass the test and that do not."""
    if isinstance(error, CaughtValue):
        tracer.graph_break("except-star-of-caught", type=error.describe())
    if test(error):
        return error, None
    if not issubclass(error.kind, BaseExceptionGroup):
        return None, error
    parts = [parts_of(tracer, member, test, keep_rest) for member in members_of(error)]
    taken = _derived(tracer, error, [taken for taken, _ in parts])
    return taken, _derived(tracer, error, [rest for _, rest in parts]) if keep_rest else None


def _derived(tracer: Tracing, group: ExceptionValue, kept: list[ExceptionValue | None]) -> ExceptionValue | None:
    """A group of some of the exceptions, with the group's notes and links; None if there are none."""
    found = [member for member in kept if member is not None]
    if not found:
        return None
    if overrides(group.kind, "derive"):
        given = (ListValue(list(found)),)
        made = tracer.python.class_attribute(group, group.kind, "derive").call(tracer, given, {})
    else:
        made = make_group(tracer, BaseExceptionGroup, (group.args[0], ListValue(list(found))))
    if not isinstance(made, ExceptionValue) or not issubclass(made.kind, BaseExceptionGroup):
        tracer.raise_error(TypeError, "derive must return an instance of BaseExceptionGroup")
    made.raised_at = group.raised_at
    for name in LINKS:
        made.attributes[name] = group.get_attribute(tracer, name)
    notes = group.attributes.get("__notes__")
    if notes is not None:
        made.attributes["__notes__"] = ListValue(list(tracer.unpack(notes)))
    return made


@handles(BaseExceptionGroup.__new__)
def make(call: Call, cls: Value, /, *args: Value) -> Value:
    """`cls(message, exceptions)`."""
    if not isinstance(cls, ClassValue) or not issubclass(cls.cls, BaseExceptionGroup):
        call.graph_break("exception-group-arguments", type=cls.describe())
    return make_group(call.tracing, cls.cls, args)


@handles(BaseExceptionGroup.split)
def split(call: Call, group: Value, condition: Value) -> Value:
    """The exceptions that pass a test, and the rest."""
    parts = parts_of(call.tracing, call.tracing.as_exception(group), test_of(call, condition))
    return TupleValue([call.constant(None) if part is None else part for part in parts])


@handles(BaseExceptionGroup.subgroup)
def subgroup(call: Call, group: Value, condition: Value) -> Value:
    """The exceptions that pass a test."""
    error = call.tracing.as_exception(group)
    taken, _ = parts_of(call.tracing, error, test_of(call, condition), keep_rest=False)
    return call.constant(None) if taken is None else taken


@handles(BaseExceptionGroup.derive)
def derive(call: Call, group: Value, found: Value) -> Value:
    """A group of other exceptions with the same message."""
    message = call.tracing.as_exception(group).get_attribute(call.tracing, "message")
    return make_group(call.tracing, BaseExceptionGroup, (message, found))


def test_of(call: Call, condition: Value) -> Callable[[ExceptionValue], bool]:
    """The test passed to `split` or `subgroup`: classes, or a function."""
    given = condition.items if isinstance(condition, TupleValue) else [condition]
    kinds = tuple(item.cls for item in given if isinstance(item, ClassValue) and issubclass(item.cls, BaseException))
    if kinds and len(kinds) == len(given):
        return lambda error: issubclass(error.kind, kinds)
    if condition.python_type() is not FunctionType:
        call.graph_break("exception-group-condition", type=condition.describe())
    return lambda error: condition.call(call.tracing, (error,), {}).truth(call.tracing)
