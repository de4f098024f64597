"""Text of values: f-strings, str(), repr(), format()."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import attrs

from armature.trace.errors import NotConstant
from armature.trace.values.base import Value
from armature.trace.values.classes import ClassValue
from armature.trace.values.constant import ConstantValue
from armature.trace.values.exception import ExceptionValue
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.trace.capture import Tracer


@attrs.define(eq=False)
class UnknownTextValue(Value):
    """A string that tracing does not know: it shows the numbers of a tensor, or an address. It may be made, for an
    error that is raised, but not looked at."""

    mutable: ClassVar[bool] = True

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return "text that depends on what runs"

    def truth(self, tracer: Tracer) -> bool:
        tracer.graph_break("data-dependent-value", operation="the text of a tensor or object")


def text_of(tracer: Tracer, value: Value, convert: Callable[[object], str]) -> Value:
    """`str(value)`, `repr(value)`, `ascii(value)` or `format(value)`."""
    try:
        return ConstantValue(convert(value.as_constant()))
    except NotConstant:
        pass
    if isinstance(value, ExceptionValue) and convert in (str, format):
        return value.call_method(tracer, "__str__", (), {})
    if isinstance(value, ClassValue) and type(value.cls).__repr__ is type.__repr__:
        return ConstantValue(convert(value.cls))
    if isinstance(value, UserObjectValue):
        name = "__repr__" if convert in (repr, ascii) else "__str__"
        if getattr(value.cls, name) is not getattr(object, name):
            return tracer.call(tracer.class_attribute(value, value.cls, name), (), {})
    return UnknownTextValue()


def join(parts: list[Value]) -> Value:
    """The parts of an f-string, one after the other."""
    if all(part.is_constant for part in parts):
        return ConstantValue("".join(str(part.as_constant()) for part in parts))
    return UnknownTextValue()
