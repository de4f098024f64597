"""Opcodes of `raise`, `try` and `with`."""

from __future__ import annotations

from types import NoneType

from armature.introspection import MISSING, class_member
from armature.trace.base import BoundMethod, Tracing, Value, type_name
from armature.trace.bytecode.instructions import Instruction
from armature.trace.errors import UserRaised
from armature.trace.frame_state import Frame
from armature.trace.opcodes.table import opcode
from armature.trace.values.classes import ClassValue, rely_on_class
from armature.trace.values.context import ContextValue
from armature.trace.values.derived import native
from armature.trace.values.exception import ExceptionValue, handled_exception, raising
from armature.trace.values.function import MethodValue
from armature.trace.values.sequence import TupleValue
from armature.trace.values.user_object import UserObjectValue


@opcode("RAISE_VARARGS")
def raise_varargs(frame: Frame, inst: Instruction) -> None:
    cause = frame.pop() if inst.arg == 2 else None
    if inst.arg == 0:
        handled = handled_exception(frame.tracer)
        if handled is None:
            frame.tracer.raise_error(RuntimeError, "No active exception to reraise")
        raise UserRaised(handled)
    error = frame.tracer.as_exception(frame.pop())
    if cause is not None:
        if isinstance(cause, ClassValue) and issubclass(cause.cls, BaseException):
            cause = frame.tracer.as_exception(cause)
        if not issubclass(cause.python_type(), (BaseException, NoneType)):
            frame.tracer.raise_error(TypeError, "exception causes must derive from BaseException")
        error.attributes["__cause__"] = cause
    raise raising(frame.tracer, error)


@opcode("RERAISE")
def reraise(frame: Frame, inst: Instruction) -> None:
    raise UserRaised(frame.pop())


@opcode("PUSH_EXC_INFO")
def push_exc_info(frame: Frame, inst: Instruction) -> None:
    error = frame.tracer.as_exception(frame.pop())
    frame.handling_slots.append(len(frame.stack))
    frame.push(frame.handling[-1] if frame.handling else frame.tracer.constant(None))
    frame.push(error)
    frame.handling.append(error)


@opcode("POP_EXCEPT")
def pop_except(frame: Frame, inst: Instruction) -> None:
    frame.pop()
    frame.handling.pop()
    frame.handling_slots.pop()


@opcode("CHECK_EXC_MATCH")
def check_exc_match(frame: Frame, inst: Instruction) -> None:
    wanted = frame.pop()
    error = frame.stack[-1]
    frame.push(frame.tracer.constant(issubclass(error.python_type(), exception_classes(frame, wanted))))


def exception_classes(frame: Frame, wanted: Value) -> tuple[type, ...]:
    """The classes that an `except` clause names."""
    found = native(wanted)
    named = found.items if isinstance(found, TupleValue) else [wanted]
    classes = [item.cls for item in named if isinstance(item, ClassValue) and issubclass(item.cls, BaseException)]
    if len(classes) != len(named):
        frame.tracer.raise_error(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    return tuple(classes)


@opcode("LOAD_ASSERTION_ERROR")
def load_assertion_error(frame: Frame, inst: Instruction) -> None:
    frame.push(frame.tracer.as_value(AssertionError))


@opcode("BEFORE_WITH")
def before_with(frame: Frame, inst: Instruction) -> None:
    manager = frame.pop()
    enter = entry(frame, manager, "__enter__", "")
    frame.push(entry(frame, manager, "__exit__", " (missed __exit__ method)"))
    frame.push(enter.call(frame.tracer, (), {}))


def entry(frame: Frame, manager: Value, name: str, missed: str) -> Value:
    """A method that `with` looks up in the class of an object. TypeError of the program when the class has none."""
    kind = manager.python_type()
    # a ContextValue has only the function, not the class
    if class_member(kind, name) is MISSING and not isinstance(manager, ContextValue):
        rely_on_class(frame.tracer, kind, name)
        text = f"'{type_name(kind)}' object does not support the context manager protocol{missed}"
        frame.tracer.raise_error(TypeError, text)
    return special_method(frame.tracer, manager, name)


@opcode("WITH_EXCEPT_START")
def with_except_start(frame: Frame, inst: Instruction) -> None:
    error = frame.stack[-1]
    leave = frame.stack[-4]
    if not isinstance(error, ExceptionValue):
        frame.tracer.graph_break("raises-no-exception", type=error.describe())
    args = (frame.tracer.as_value(error.kind), error, error.traceback(frame.tracer))
    frame.push(leave.call(frame.tracer, args, {}))


def special_method(tracer: Tracing, owner: Value, name: str) -> Value:
    """A special method as `with` looks it up: in the class only."""
    if isinstance(owner, UserObjectValue):
        method = owner.method(tracer, name)
        if method is None:
            tracer.raise_error(AttributeError, name)
        return method
    # trace a call of it instead of making one: a torch.device
    if owner.is_constant and hasattr(owner.python_type(), name):
        return MethodValue(tracer.as_value(getattr(owner.python_type(), name)), owner)
    return BoundMethod(owner, name)
