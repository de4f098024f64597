"""Strings while tracing, and the texts of values: str(), repr(), format()."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, TypeVar

import attrs
import torch

from armature.plugin_api import (
    COLLECTION_SLOTS,
    Args,
    ClassValue,
    ConstantValue,
    DictValue,
    ExceptionValue,
    Kwargs,
    ListValue,
    NotConstant,
    ObjectValue,
    Rebuilding,
    SymbolicNumber,
    TracedTensor,
    Tracing,
    TupleValue,
    Value,
    VaryingNumber,
    class_member,
    find_in_class,
    is_trusted,
    locations_of,
    overrides,
    rely_on_class,
    type_name,
    version_of,
)
from armature_builtin_rules.enum_values import enum_attribute

# The methods that convert an object to text, each only if the class has none of those before it (data model, 3.3.1).
TEXT: Mapping[Callable[..., str], tuple[str, ...]] = {
    repr: ("__repr__",),
    ascii: ("__repr__",),
    str: ("__str__", "__repr__"),
    format: ("__format__", "__str__", "__repr__"),
}
V = TypeVar("V", bound=Value)
Convert = Callable[[Tracing, V, Callable[..., str]], Value | None]
SHOWN: dict[type, tuple[str, str]] = {ListValue: ("[", "]"), TupleValue: ("(", ")"), DictValue: ("{", "}")}


@attrs.define(eq=False)
class UnknownTextValue(Value):
    """A string unknown to tracing, because it shows the elements of a tensor, or an address. It may be made, for
    example for an error that is raised, but not inspected.

    It is `convert(*operands)`, or the concatenated operands; versions: the operands' version counters at that time.
    made_at: where it was made.
    """

    convert: Callable[..., str] | None
    operands: tuple[Value, ...]
    versions: tuple[int, ...] = ()
    made_at: tuple[object, ...] = ()

    mutable: ClassVar[bool] = True
    slots = frozenset({"__bool__"})

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return "text that depends on what runs"

    def truth(self, tracer: Tracing) -> bool:
        tracer.graph_break("text-of-tensor", function="bool()")

    def rebuild(self, out: Rebuilding) -> None:
        if self.convert is not None and tuple(map(version, self.operands)) != self.versions:
            out.cannot(self)  # the elements were different then
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
    """A string that contains numbers that vary. Inspecting it turns them into constants.

    parts: text, or such a number and the function that converts it to text.
    """

    parts: list[str | tuple[SymbolicNumber | VaryingNumber, Callable[[object], str]]]

    slots = COLLECTION_SLOTS | {"__bool__", "__getitem__"}

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return "text with a number that is not known while tracing"

    def as_constant(self) -> str:
        return "".join(part if isinstance(part, str) else part[1](part[0].as_constant()) for part in self.parts)

    def constant(self) -> ConstantValue:
        """The text as a constant, with its numbers guarded."""
        return ConstantValue(self.as_constant())

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return self.constant().get_attribute(tracer, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        return self.constant().call_method(tracer, name, args, kwargs)

    def get_item(self, tracer: Tracing, key: Value) -> Value:
        return self.constant().get_item(tracer, key)

    def truth(self, tracer: Tracing) -> bool:
        return self.constant().truth(tracer)

    def length(self, tracer: Tracing) -> int:
        return self.constant().length(tracer)

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        return self.constant().stream(tracer)

    def contains(self, tracer: Tracing, item: Value) -> bool:
        return self.constant().contains(tracer, item)

    def rebuild(self, out: Rebuilding) -> None:
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
    """The version counter of the tensor that a text shows; -1 if that is not known."""
    if isinstance(value, TracedTensor):
        return version_of(value.fake)
    return (
        0
        if isinstance(value, (ConstantValue, SymbolicNumber, VaryingNumber, NumberTextValue, UnknownTextValue))
        else -1
    )


def of_kind(kind: type[V], convert: Convert[V]) -> Convert[Value]:
    """A row for values of a class: None for others."""
    return lambda tracer, value, text: convert(tracer, value, text) if isinstance(value, kind) else None


def text_of(tracer: Tracing, value: Value, convert: Callable[..., str], spec: Value | None = None) -> Value:
    """`str(value)`, `repr(value)`, `ascii(value)` or `format(value, spec)`, by the first row that gives one."""
    for row in (*CONVERTED, *SHOWN_BY_CLASS, text_of_container) if spec is None else SHOWN_BY_CLASS:
        made = row(tracer, value, convert)
        if made is not None:
            return made
    return unknown_text(tracer, value, convert, spec)


def _of_number(tracer: Tracing, value: SymbolicNumber | VaryingNumber, convert: Callable[..., str]) -> Value:
    return NumberTextValue([(value, convert)])


def _of_text(tracer: Tracing, value: Value, convert: Callable[..., str]) -> Value | None:
    return value if convert in (str, format) else None


def _of_member(tracer: Tracing, value: ConstantValue, convert: Callable[..., str]) -> Value | None:
    return text_of_member(tracer, value, value.value, convert) if isinstance(value.value, enum.Enum) else None


def _of_constant(tracer: Tracing, value: Value, convert: Callable[..., str]) -> Value | None:
    if varies(tracer, value):
        return None
    try:
        return ConstantValue(convert(value.as_constant()))
    except NotConstant:
        return None


def varies(tracer: Tracing, value: Value) -> bool:
    """Whether it is a number that varies, or a builtin container of one."""
    if type(value) not in SHOWN or value.python_type() not in (list, tuple, dict):
        return value.is_symbolic
    held = (
        [item for _, item in value.realise(tracer).values()] if isinstance(value, DictValue) else tracer.unpack(value)
    )
    return any(varies(tracer, item) for item in held)


def _of_exception(tracer: Tracing, value: ExceptionValue, convert: Callable[..., str]) -> Value:
    name = "__repr__" if convert in (repr, ascii) else "__str__"
    return tracer.python.class_attribute(value, value.kind, name).call(tracer, (), {})


def _of_class(tracer: Tracing, value: ClassValue, convert: Callable[..., str]) -> Value | None:
    return ConstantValue(convert(value.cls)) if type(value.cls).__repr__ is type.__repr__ else None


def unknown_text(tracer: Tracing, value: Value, convert: Callable[..., str], spec: Value | None = None) -> Value:
    """A text that is only known at run time."""
    operands = (value,) if spec is None else (value, spec)
    versions = tuple(map(version, operands))
    made = UnknownTextValue(convert, operands, versions, locations_of(tracer.stack.frames))
    if -1 in versions:
        made.versions = ()
    return made


def text_of_container(tracer: Tracing, value: Value, convert: Callable[..., str]) -> Value | None:
    """The text of a list, tuple or dict, from the texts of its items; None for a class derived from these."""
    if type(value) not in SHOWN:
        return None
    parts: list[Value] = []
    if isinstance(value, DictValue):
        entries = value.realise(tracer).values()
        rows = [
            [text_of(tracer, key, repr), tracer.constant(": "), text_of(tracer, item, repr)] for key, item in entries
        ]
    else:
        rows = [[text_of(tracer, item, repr)] for item in tracer.unpack(value)]
    for row in rows:
        parts += [tracer.constant(", "), *row]
    opening, closing = SHOWN[type(value)]
    if isinstance(value, TupleValue) and len(rows) == 1:
        closing = ",)"
    plain = value.python_type() in (list, tuple, dict)
    if not plain:
        return unknown_text(tracer, value, repr)
    return join([tracer.constant(opening), *parts[1:], tracer.constant(closing)])


def text_of_object(tracer: Tracing, value: ObjectValue, convert: Callable[[object], str]) -> Value | None:
    """Convert by the methods of the object's class, with their fallbacks; None if it has none in Python."""
    rely_on_class(tracer, value.cls, *TEXT[convert])
    for name in TEXT[convert]:
        if name == "__repr__" and convert in (str, format) and issubclass(value.cls, str):
            break  # a string is its own text
        if overrides(value.cls, name):
            args = (tracer.constant(""),) if name == "__format__" else ()
            made = tracer.python.class_attribute(value, value.cls, name).call(tracer, args, {})
            asked = "__str__" if convert in (str, format) and name == "__repr__" else name  # it is the fallback
            return must_be_text(tracer, asked, made)
    return None


def text_of_member(tracer: Tracing, value: Value, member: enum.Enum, convert: Callable[[object], str]) -> Value | None:
    """Convert by the methods of an enum member's class; None if they are Python's, which show name and value."""
    if is_trusted(type(member)):
        return None
    for name in TEXT[convert]:
        rely_on_class(tracer, type(member), name)
        found = find_in_class(type(member), name)
        if found is not None and not is_trusted(found.holder):
            args = (tracer.constant(""),) if name == "__format__" else ()
            return must_be_text(
                tracer, name, tracer.python.class_attribute(value, type(member), name).call(tracer, args, {})
            )
    for name in ("_name_", "_value_"):
        shown = enum_attribute(tracer, value, member, name)
        if shown.is_constant:
            shown.as_constant()  # a text is guarded once it is read
    return None


# How values are shown, by their classes: if no format is given, in this order; with one, only as `SHOWN_BY_CLASS` says.
CONVERTED = (
    of_kind(SymbolicNumber, _of_number),
    of_kind(VaryingNumber, _of_number),
    of_kind(NumberTextValue, _of_text),
    of_kind(ConstantValue, _of_member),
    of_kind(ObjectValue, text_of_object),
    _of_constant,
)
SHOWN_BY_CLASS = (of_kind(ExceptionValue, _of_exception), of_kind(ClassValue, _of_class))


def must_be_text(tracer: Tracing, name: str, made: Value) -> Value:
    """Check the result of `__str__` or the like. TypeError of the program if it is not a string."""
    kind = made.python_type()
    if not issubclass(kind, str):
        text = f"{name} returned non-string (type {kind.__name__})"
        if name == "__format__":
            text = f"__format__ must return a str, not {kind.__name__}"
        tracer.raise_error(TypeError, text)
    return made


def formatted(tracer: Tracing, value: Value, spec: str) -> Value:
    """`format(value, spec)`."""
    if isinstance(value, ObjectValue) and overrides(value.cls, "__format__"):
        made = tracer.python.class_attribute(value, value.cls, "__format__").call(tracer, (tracer.constant(spec),), {})
        return must_be_text(tracer, "__format__", made)
    if spec == "":
        return text_of(tracer, value, format)
    if isinstance(value, VaryingNumber):
        formatted(tracer, tracer.constant(value.number), spec)  # raises the error for a format of another type
        return text_of(tracer, value, lambda number: format(number, spec))
    if value.is_symbolic and value.python_type() is int:
        return text_of(tracer, value, lambda number: format(number, spec))
    try:
        return ConstantValue(format(value.as_constant(), spec))
    except NotConstant:
        if class_member(value.python_type(), "__format__") is object.__dict__["__format__"]:
            name = type_name(value.python_type())
            tracer.raise_error(TypeError, f"unsupported format string passed to {name}.__format__")
        if isinstance(value, TracedTensor):
            return formatted_tensor(tracer, value, spec)
        return text_of(tracer, value, format, tracer.constant(spec))
    except (TypeError, ValueError) as error:
        tracer.raise_real(error)


def formatted_tensor(tracer: Tracing, value: TracedTensor, spec: str) -> Value:
    """`format(tensor, spec)`: formats its number. Raises the error for a format of another type."""
    fake, kind = value.fake, value.python_type()
    if fake.dim() or kind is not torch.Tensor:
        tracer.raise_error(TypeError, f"unsupported format string passed to {type_name(kind)}.__format__")
    number = 0j if fake.is_complex() else 0.0 if fake.is_floating_point() else False if fake.dtype is torch.bool else 0
    try:
        format(number, spec)
    except (TypeError, ValueError) as error:
        tracer.raise_real(error)
    if spec.endswith("c"):  # a number that is not a character raises
        tracer.graph_break("format-character")
    return text_of(tracer, value, format, tracer.constant(spec))


def join(parts: list[Value]) -> Value:
    """Concatenate the parts of an f-string."""
    if all(part.is_constant for part in parts):
        return ConstantValue("".join(str(part.as_constant()) for part in parts))
    if all(part.is_constant or isinstance(part, NumberTextValue) for part in parts):
        pieces = (p.parts if isinstance(p, NumberTextValue) else [str(p.as_constant())] for p in parts)
        return NumberTextValue([piece for some in pieces for piece in some])
    return UnknownTextValue(None, tuple(parts))
