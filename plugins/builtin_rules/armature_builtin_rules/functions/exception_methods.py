"""Exceptions: making them, their texts, and their methods."""

from __future__ import annotations

import builtins
from types import FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import cast

from armature.plugin_api import (
    Call,
    CaughtValue,
    ClassValue,
    ExceptionValue,
    Tracing,
    TupleValue,
    Value,
    class_member,
    find_in_class,
    handles,
    method_of,
    type_name,
)
from armature_builtin_rules.functions.exceptions import make_group
from armature_builtin_rules.functions.targets import own_methods

NAMED = (kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException))
EXCEPTIONS = tuple(dict.fromkeys(NAMED))  # some have several names
# Their `__init__` does more than store its arguments.
OWN_INIT = (OSError, UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError, ImportError, SystemExit)
# They check their arguments.
LOOK_AT_ARGUMENTS = (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError, SyntaxError)
OWN_TEXT = (OSError, UnicodeError, SyntaxError, BaseExceptionGroup)


@handles(BaseException.__new__)
def make(call: Call, value: Value, /, *args: Value) -> Value:
    """An exception with its arguments. It makes no difference that the class derives from others in C."""
    if not isinstance(value, ClassValue) or not issubclass(value.cls, BaseException):
        call.graph_break("new-of-no-class", function="BaseException.__new__", type=value.describe())
    cls = value.cls
    if issubclass(cls, BaseExceptionGroup):
        return make_group(call.tracing, cls, args)
    if issubclass(cls, OSError) and len(args) > 2:  # it stores file names
        call.graph_break("error-with-file-name", type=value.describe())
    if cls is OSError and len(args) == 2:
        cls = type(OSError(*(arg.as_constant() for arg in args)))  # the error number determines the class
    init = find_in_class(cls, "__init__")
    if issubclass(cls, LOOK_AT_ARGUMENTS) and not (init is not None and isinstance(init.obj, FunctionType)):
        call.fold(cls, *(arg.as_constant() for arg in args))  # raises Python's own error about the arguments
    return ExceptionValue(cls, list(args))


def check_not_of_program(tracer: Tracing, error: ExceptionValue, method: str) -> None:
    """Break the graph if an exception of the program is about to change."""
    if isinstance(error, CaughtValue):
        tracer.graph_break("exception-notes", method=method, type=error.describe())


@method_of(ExceptionValue, *own_methods("__init__", *(kind for kind in EXCEPTIONS if kind not in OWN_INIT)))
def initialise(tracer: Tracing, error: ExceptionValue, *args: Value) -> None:
    """Set its arguments."""
    check_not_of_program(tracer, error, "__init__")
    error.args = list(args)


@method_of(ExceptionValue, BaseException.with_traceback)
def with_traceback(tracer: Tracing, error: ExceptionValue, traceback: Value, /) -> Value:
    """Set the traceback, and return the exception."""
    check_not_of_program(tracer, error, "with_traceback")
    error.set_attribute(tracer, "__traceback__", traceback)
    return error


@method_of(ExceptionValue, BaseException.add_note)
def add_note(tracer: Tracing, error: ExceptionValue, note: Value, /) -> None:
    """Add a note."""
    check_not_of_program(tracer, error, "add_note")
    if not issubclass(note.python_type(), str):
        tracer.raise_error(TypeError, f"note must be a str, not '{type_name(note.python_type())}'")
    notes = error.attributes.setdefault("__notes__", tracer.as_value([]))
    notes.call_method(tracer, "append", (note,), {})


@handles(*own_methods("__str__", *EXCEPTIONS), *own_methods("__repr__", *EXCEPTIONS))
def text_of_exception(call: Call, error: Value, /) -> Value | None:
    """`str(error)` or `repr(error)`, from its arguments."""
    if not isinstance(error, ExceptionValue):
        return None
    tracer, method = call.tracing, cast("MethodDescriptorType | WrapperDescriptorType", call.fn)
    if issubclass(error.kind, OWN_TEXT) or class_member(error.kind, "args") is not class_member(BaseException, "args"):
        call.graph_break("text-of-error", name=method.__name__, type=error.describe())
    args = tracer.unpack(error.get_attribute(tracer, "args"))
    if method.__name__ == "__repr__":
        shown = [tracer.python.builtin(repr, arg) for arg in args]
        parts = [part for item in shown for part in (call.constant(", "), item)][1:]
        items = [call.constant(f"{error.kind.__name__}("), *parts, call.constant(")")]
        return tracer.python.builtin(str.join, call.constant(""), TupleValue(items))
    if len(args) == 1 and method.__objclass__ is not KeyError:
        return tracer.python.builtin(str, args[0])
    if not args:
        return call.constant("")
    return tracer.python.builtin(repr, args[0] if len(args) == 1 else TupleValue(args))
