"""Exceptions that the program makes, raises and catches inside the frame."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar

import attrs

from armature.frame.sources import AttrSource
from armature.introspection import class_member
from armature.trace.base import NotConstant, Value
from armature.trace.errors import UserRaised
from armature.trace.locations import locations_of
from armature.trace.values.classes import class_attribute, overrides
from armature.trace.values.sequence import TupleValue

if TYPE_CHECKING:
    from armature.trace.base import Rebuilding, Tracing
    from armature.trace.locations import Location


@attrs.define(eq=False)
class ExceptionValue(Value):
    """An exception: its class and arguments, and the attributes set on it."""

    kind: type[BaseException]
    args: list[Value]
    attributes: dict[str, Value] = attrs.field(factory=dict)
    raised_at: tuple[Location, ...] = ()  # where it was first raised
    known_traceback: Value | None = None  # as last read or set

    mutable: ClassVar[bool] = True

    def python_type(self) -> type:
        return self.kind

    def describe(self) -> str:
        return f"{self.kind.__name__}({self.message()})"

    def message(self) -> str:
        """The text of the exception, as far as it is known."""
        try:
            return ", ".join(str(arg.as_constant()) for arg in self.args)
        except NotConstant:
            return "..."

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in self.attributes and not hides(self.kind, name):
            return self.attributes[name]
        row = OWN_ATTRIBUTES.get(name)
        if row and issubclass(self.kind, row[0]) and class_member(self.kind, name) is class_member(row[0], name):
            return row[1](self, tracer)
        return class_attribute(tracer, self, self.kind, name)

    def set_attribute(self, tracer: Tracing, name: str, value: Value) -> None:
        if name == "args":
            self.args = tracer.unpack(value)
        elif name == "__traceback__" and not overrides(self.kind, name):
            if value.python_type() not in (TracebackType, type(None)):
                tracer.raise_error(TypeError, "__traceback__ must be a traceback or None")
            self.known_traceback = value
        elif hides(self.kind, name):  # this sets another place than `raise` does
            tracer.graph_break("sets-exception-attribute", name=name, type=self.describe())
        else:
            self.attributes[name] = value

    def traceback(self, tracer: Tracing) -> Value:
        """`__traceback__`, which is also the third item of `sys.exc_info()` while it is handled."""
        if self.known_traceback is None:
            has_one = self.raised_at or isinstance(self, CaughtValue)
            made = TracebackValue(locations_of(tracer.stack.frames))
            self.known_traceback = made if has_one else tracer.constant(None)
        return self.known_traceback

    def rebuild(self, out: Rebuilding) -> None:
        if self.attributes or self.raised_at or isinstance(self.known_traceback, TracebackValue):
            out.cannot(self)
        out.function(lambda: out.load(out.tracer.as_value(self.kind)))
        for arg in self.args:
            out.load(arg)
        out.call(len(self.args))


OWN_ATTRIBUTES: dict[str, tuple[type[BaseException], Callable[[ExceptionValue, Tracing], Value]]] = {
    "args": (BaseException, lambda error, tracer: TupleValue(list(error.args))),
    "value": (StopIteration, lambda error, tracer: error.args[0] if error.args else tracer.constant(None)),
    "message": (BaseExceptionGroup, lambda error, tracer: error.args[0]),
    "exceptions": (BaseExceptionGroup, lambda error, tracer: TupleValue(tracer.unpack(error.args[1]))),
    "__cause__": (BaseException, lambda error, tracer: tracer.constant(None)),
    "__context__": (BaseException, lambda error, tracer: tracer.constant(None)),
    "__suppress_context__": (BaseException, lambda error, tracer: tracer.constant("__cause__" in error.attributes)),
    "__class__": (BaseException, lambda error, tracer: tracer.as_value(error.kind)),
    "__traceback__": (BaseException, ExceptionValue.traceback),
}
"""Attributes of exceptions that the program has not set, the class that has them, and how they are read."""


@attrs.define(eq=False)
class CaughtValue(ExceptionValue):
    """An exception that the program raised before tracing began, which a resumed frame handles."""

    obj: BaseException = attrs.field(kw_only=True)
    read: bool = False

    def describe(self) -> str:
        return f"the exception {self.kind.__name__}"

    def _read_args(self, tracer: Tracing) -> None:
        if not self.read and self.source is not None:
            self.args = tracer.unpack(tracer.objects.wrap(self.obj.args, AttrSource(self.source, "args")))
        self.read = True

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in ("__traceback__", "with_traceback", "add_note"):
            tracer.graph_break("exception-traceback", name=name, type=self.describe())
        if self.source is not None and (name in LINKS or name in vars(self.obj)):
            return tracer.objects.wrap(getattr(self.obj, name), AttrSource(self.source, name))
        self._read_args(tracer)
        return super().get_attribute(tracer, name)

    def set_attribute(self, tracer: Tracing, name: str, value: Value) -> None:
        tracer.graph_break("sets-exception-attribute", name=name, type=self.describe())


@attrs.define(eq=False)
class TracebackValue(Value):
    """The traceback of an exception being handled: an object whose contents are unknown while tracing."""

    made_at: tuple[Location, ...] = ()  # where it was read

    mutable: ClassVar[bool] = True

    def python_type(self) -> type:
        return TracebackType

    def describe(self) -> str:
        return "a traceback"


LINKS = frozenset({"__cause__", "__context__", "__suppress_context__"})


def hides(kind: type[BaseException], name: str) -> bool:
    """Whether a class has an attribute of its own where exceptions have what `raise` sets."""
    return name in LINKS and class_member(kind, name) is not class_member(BaseException, name)


def handled_exception(tracer: Tracing) -> ExceptionValue | None:
    """The exception that an `except` or `finally` block is handling."""
    return next((frame.handling[-1] for frame in reversed(tracer.stack.frames) if frame.handling), None)


def raising(tracer: Tracing, error: ExceptionValue) -> UserRaised:
    """Prepare an exception that the program raises now: the one being handled becomes its context."""
    handled = handled_exception(tracer)
    if handled is not None and handled is not error:
        error.attributes["__context__"] = handled
    return UserRaised(error)
