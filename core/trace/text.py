"""Text of values: f-strings, str(), repr(), format()."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar

import attrs

from armature.torch_abi.fake import version_of
from armature.trace.errors import NotConstant
from armature.trace.places import Place, places_of
from armature.trace.values.base import Args, Kwargs, Value
from armature.trace.values.classes import ClassValue
from armature.trace.values.constant import ConstantValue
from armature.trace.values.exception import ExceptionValue
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.trace.capture import Tracer
    from armature.trace.rebuild import Rebuilder


@attrs.define(eq=False)
class UnknownTextValue(Value):
    """A string that tracing does not know: it shows the numbers of a tensor, or an address. It may be made, for an
    error that is raised, but not looked at.

    It is `convert(*operands)`, or the operands one after the other; versions: how often each was changed in place by
    then. made_at: where.
    """

    convert: Callable[..., str] | None
    operands: tuple[Value, ...]
    versions: tuple[int, ...] = ()
    made_at: tuple[Place, ...] = ()

    mutable: ClassVar[bool] = True

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return "text that depends on what runs"

    def truth(self, tracer: Tracer) -> bool:
        tracer.graph_break("data-dependent-value", operation="the text of a tensor or object")

    def rebuild(self, out: Rebuilder) -> None:
        if self.convert is not None and tuple(map(version, self.operands)) != self.versions:
            out.cannot(self)  # the numbers were others then
        if self.convert is not None:
            out.null_function(self.convert)
        for operand in self.operands:
            out.load(operand)
        if self.convert is not None:
            out.call(len(self.operands))
        else:
            out.build("BUILD_STRING", len(self.operands))


@attrs.define(eq=False)
class NumberTextValue(Value):
    """A string in which numbers stand that tracing does not know. Where it is looked at, they are taken as constants.

    parts: text, or a symbolic number and what makes text of it.
    """

    parts: list[str | tuple[SymbolicValue, Callable[[object], str]]]

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return "text with a number that is not known while tracing"

    def as_constant(self) -> object:
        return "".join(part if isinstance(part, str) else part[1](part[0].as_constant()) for part in self.parts)

    def constant(self) -> ConstantValue:
        """The text as a constant, its numbers guarded."""
        return ConstantValue(self.as_constant())

    def get_attribute(self, tracer: Tracer, name: str) -> Value:
        return self.constant().get_attribute(tracer, name)

    def call_method(self, tracer: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        return self.constant().call_method(tracer, name, args, kwargs)

    def get_item(self, tracer: Tracer, key: Value) -> Value:
        return self.constant().get_item(tracer, key)

    def truth(self, tracer: Tracer) -> bool:
        return self.constant().truth(tracer)

    def length(self, tracer: Tracer) -> int:
        return self.constant().length(tracer)

    def stream(self, tracer: Tracer) -> Iterator[Value]:
        return self.constant().stream(tracer)

    def contains(self, tracer: Tracer, item: Value) -> bool:
        return self.constant().contains(tracer, item)

    def rebuild(self, out: Rebuilder) -> None:
        out.null_function("".join)
        for part in self.parts:
            if isinstance(part, str):
                out.constant(part)
            else:
                out.null_function(part[1])
                out.load(part[0])
                out.call(1)
        out.build("BUILD_TUPLE", len(self.parts))
        out.call(1)


def version(value: Value) -> int:
    """How often what a text shows was changed in place; -1 where that is not known."""
    if isinstance(value, TensorValue):
        return version_of(value.fake)
    return 0 if isinstance(value, (ConstantValue, SymbolicValue, NumberTextValue, UnknownTextValue)) else -1


def text_of(tracer: Tracer, value: Value, convert: Callable[..., str], spec: Value | None = None) -> Value:
    """`str(value)`, `repr(value)`, `ascii(value)` or `format(value, spec)`."""
    if spec is None and isinstance(value, SymbolicValue):
        return NumberTextValue([(value, convert)])
    if spec is None and isinstance(value, NumberTextValue) and convert in (str, format):
        return value
    try:
        if spec is None:
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
    operands = (value,) if spec is None else (value, spec)
    versions = tuple(map(version, operands))
    made = UnknownTextValue(convert, operands, versions, places_of(tracer.frames))
    if -1 in versions:
        made.versions = ()
    return made


def join(parts: list[Value]) -> Value:
    """The parts of an f-string, one after the other."""
    if all(part.is_constant for part in parts):
        return ConstantValue("".join(str(part.as_constant()) for part in parts))
    if all(part.is_constant or isinstance(part, NumberTextValue) for part in parts):
        pieces = (p.parts if isinstance(p, NumberTextValue) else [str(p.as_constant())] for p in parts)
        return NumberTextValue([piece for some in pieces for piece in some])
    return UnknownTextValue(None, tuple(parts))
