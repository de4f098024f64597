"""Exceptions that the program makes, raises and catches inside the frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from armature.trace.errors import NotConstant
from armature.trace.values.base import Args, BoundMethod, Kwargs, Value

if TYPE_CHECKING:
    from armature.trace.capture import Tracer
    from armature.trace.rebuild import Rebuilder


@attrs.define(eq=False)
class ExceptionValue(Value):
    """An exception: its class and arguments, and attributes set on it."""

    kind: type[BaseException]
    args: list[Value]
    attributes: dict[str, Value] = attrs.field(factory=dict)

    mutable: ClassVar[bool] = True

    def python_type(self) -> type:
        return self.kind

    def describe(self) -> str:
        return f"{self.kind.__name__}({self.message()})"

    def message(self) -> str:
        """The text of the exception as far as it is known."""
        try:
            return ", ".join(str(arg.as_constant()) for arg in self.args)
        except NotConstant:
            return "..."

    def get_attribute(self, tracer: Tracer, name: str) -> Value:
        if name in self.attributes:
            return self.attributes[name]
        if name == "args":
            return tracer.tuple_of(list(self.args))
        if name == "value" and issubclass(self.kind, StopIteration):
            return self.args[0] if self.args else tracer.constant(None)
        if name in ("__cause__", "__context__"):
            return tracer.constant(None)
        if name == "__class__":
            return tracer.as_value(self.kind)
        if name in ("with_traceback", "__str__", "__repr__", "add_note"):
            return BoundMethod(self, name)
        return tracer.class_attribute(self, self.kind, name)

    def set_attribute(self, tracer: Tracer, name: str, value: Value) -> None:
        self.attributes[name] = value

    def call_method(self, tracer: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "with_traceback":
            return self
        if name == "__str__" and self.kind.__str__ in (BaseException.__str__, KeyError.__str__):
            return tracer.constant(str(self._plain()))
        return super().call_method(tracer, name, args, kwargs)

    def _plain(self) -> BaseException:
        base = KeyError if issubclass(self.kind, KeyError) else BaseException
        return base(*(arg.as_constant() for arg in self.args))

    def rebuild(self, out: Rebuilder) -> None:
        if self.attributes:
            out.cannot(self)
        out.null_function(self.kind)
        for arg in self.args:
            out.load(arg)
        out.call(len(self.args))
