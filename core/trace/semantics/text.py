"""Text of values: f-strings, str(), repr(), format()."""

from __future__ import annotations

import collections
import enum
import functools
import operator
import re
import string
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import torch

from armature.introspection import MISSING, class_member
from armature.torch_abi.fake import version_of
from armature.trace.places import Place, places_of
from armature.trace.semantics.slots import TEXT
from armature.trace.trust import is_trusted
from armature.trace.values.base import Args, Kwargs, NotConstant, Value, type_name
from armature.trace.values.classes import ClassValue, class_attribute, find_in_class, overrides, rely_on_class
from armature.trace.values.constant import ConstantValue, enum_attribute
from armature.trace.values.derived import native
from armature.trace.values.exception import ExceptionValue
from armature.trace.values.mapping import DictValue
from armature.trace.values.precomputed import EarlyNumber
from armature.trace.values.sequence import ListValue, TupleValue
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace
    from armature.trace.values.base import Rebuilding, Tracing


SHOWN: dict[type, tuple[str, str]] = {ListValue: ("[", "]"), TupleValue: ("(", ")"), DictValue: ("{", "}")}


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

    def truth(self, tracer: Tracing) -> bool:
        tracer.graph_break("text-of-tensor", function="bool()")

    def rebuild(self, out: Rebuilding) -> None:
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

    parts: list[str | tuple[SymbolicValue | EarlyNumber, Callable[[object], str]]]

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return "text with a number that is not known while tracing"

    def as_constant(self) -> Any:
        return "".join(part if isinstance(part, str) else part[1](part[0].as_constant()) for part in self.parts)

    def constant(self) -> ConstantValue:
        """The text as a constant, its numbers guarded."""
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
    """How often what a text shows was changed in place; -1 where that is not known."""
    if isinstance(value, TensorValue):
        return version_of(value.fake)
    return (
        0 if isinstance(value, (ConstantValue, SymbolicValue, EarlyNumber, NumberTextValue, UnknownTextValue)) else -1
    )


def text_of(tracer: Trace, value: Value, convert: Callable[..., str], spec: Value | None = None) -> Value:
    """`str(value)`, `repr(value)`, `ascii(value)` or `format(value, spec)`."""
    if spec is None and isinstance(value, (SymbolicValue, EarlyNumber)):
        return NumberTextValue([(value, convert)])
    if spec is None and isinstance(value, NumberTextValue) and convert in (str, format):
        return value
    if spec is None and isinstance(value, ConstantValue) and isinstance(value.value, enum.Enum):
        made = text_of_member(tracer, value, value.value, convert)
        if made is not None:
            return made
    if spec is None and isinstance(value, UserObjectValue):
        made = text_of_object(tracer, value, convert)
        if made is not None:
            return made
    try:
        if spec is None:
            return ConstantValue(convert(value.as_constant()))
    except NotConstant:
        pass
    if isinstance(value, ExceptionValue):
        return value.call_method(tracer, "__repr__" if convert in (repr, ascii) else "__str__", (), {})
    if isinstance(value, ClassValue) and type(value.cls).__repr__ is type.__repr__:
        return ConstantValue(convert(value.cls))
    if spec is None and type(value) in SHOWN:
        return text_of_container(tracer, value)
    return unknown_text(tracer, value, convert, spec)


def unknown_text(tracer: Trace, value: Value, convert: Callable[..., str], spec: Value | None = None) -> Value:
    """A text that shows what only a run tells."""
    operands = (value,) if spec is None else (value, spec)
    versions = tuple(map(version, operands))
    made = UnknownTextValue(convert, operands, versions, places_of(tracer.frames))
    if -1 in versions:
        made.versions = ()
    return made


def text_of_container(tracer: Trace, value: Value) -> Value:
    """The text of a list, tuple or dict, by that of its items."""
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


def text_of_object(tracer: Trace, value: UserObjectValue, convert: Callable[[object], str]) -> Value | None:
    """By the methods of the object's class, as each falls back on the next; None when it has none in Python."""
    rely_on_class(tracer, value.cls, *TEXT[convert])
    for name in TEXT[convert]:
        if name == "__repr__" and convert in (str, format) and issubclass(value.cls, str):
            break  # a string is its own text
        if overrides(value.cls, name):
            args = (tracer.constant(""),) if name == "__format__" else ()
            made = class_attribute(tracer, value, value.cls, name).call(tracer, args, {})
            asked = "__str__" if convert in (str, format) and name == "__repr__" else name  # which falls back on it
            return must_be_text(tracer, asked, made)
    return None


def text_of_member(tracer: Trace, value: Value, member: enum.Enum, convert: Callable[[object], str]) -> Value | None:
    """By the methods that the class of an enum member has; None where they are Python's: these show name and value."""
    if is_trusted(type(member)):
        return None
    for name in TEXT[convert]:
        rely_on_class(tracer, type(member), name)
        found = find_in_class(type(member), name)
        if found is not None and not is_trusted(found.holder):
            args = (tracer.constant(""),) if name == "__format__" else ()
            return must_be_text(tracer, name, class_attribute(tracer, value, type(member), name).call(tracer, args, {}))
    for name in ("_name_", "_value_"):
        enum_attribute(tracer, value, member, name)
    return None


def must_be_text(tracer: Trace, name: str, made: Value) -> Value:
    """What `__str__` or the like has returned. TypeError of the program when that is no string."""
    kind = made.python_type()
    if not issubclass(kind, str):
        text = f"{name} returned non-string (type {kind.__name__})"
        if name == "__format__":
            text = f"__format__ must return a str, not {kind.__name__}"
        tracer.raise_error(TypeError, text)
    return made


CONVERTERS: dict[str, Callable[[object], str]] = {"s": str, "r": repr, "a": ascii}
FIELD = re.compile(r"\.([^.\[]+)|\[([^\]]+)\]")


def string_parts(field: str) -> tuple[int | str, list[tuple[bool, int | str]]]:
    """The argument that a field of a format names, and the attributes (true) and items read from it."""
    first = re.split(r"[.\[]", field, maxsplit=1)[0]
    rest: list[tuple[bool, int | str]] = []
    for found in FIELD.finditer(field, len(first)):
        name = found[1] or found[2]
        rest.append((found[1] is not None, int(name) if found[1] is None and name.isdigit() else name))
    return int(first) if first.isdigit() else first, rest


def format_method(tracer: Trace, template: str, args: Args, kwargs: Kwargs) -> Value:
    """`template.format(*args, **kwargs)`, where some argument is no constant."""
    return _fields(tracer, template, Arguments(args, kwargs), 2)


@attrs.define(eq=False)
class Arguments:
    """What `str.format` was given. taken: how many nameless fields there were; numbered: whether one had a number."""

    args: Args
    kwargs: Kwargs
    taken: int = 0
    numbered: bool = False

    def get(self, tracer: Tracing, first: int | str) -> Value:
        """The argument for a field; an empty name takes the next one."""
        if first == "":
            first, self.taken = self.taken, self.taken + 1
        elif isinstance(first, int):
            self.numbered = True
        known = first < len(self.args) if isinstance(first, int) else first in self.kwargs
        if not known or (self.numbered and self.taken):  # an error, in words that differ between versions
            tracer.graph_break("format-arguments", field=first)
        return self.args[first] if isinstance(first, int) else self.kwargs[first]


def _parsed(tracer: Trace, template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        found = list(string.Formatter().parse(template))
    except ValueError:
        found = None
    if found is None or any(conversion and conversion not in CONVERTERS for *_, conversion in found):
        tracer.graph_break("format-template", template=template)
    return found


def _fields(tracer: Trace, template: str, given: Arguments, depth: int) -> Value:
    if depth == 0:
        tracer.graph_break("format-nested")
    parts: list[Value] = []
    for literal, field, spec, conversion in _parsed(tracer, template):
        parts.append(tracer.constant(literal))
        if field is None:
            continue
        first, rest = string_parts(field)
        value = given.get(tracer, first)
        for is_attribute, name in rest:
            key = tracer.constant(name)
            value = value.get_attribute(tracer, str(name)) if is_attribute else value.get_item(tracer, key)
        if conversion:
            value = text_of(tracer, value, CONVERTERS[conversion])
        nested = _fields(tracer, spec, given, depth - 1) if spec and "{" in spec else tracer.constant(spec or "")
        parts.append(formatted(tracer, value, known_text(tracer, nested)))
    return join(parts)


def known_text(tracer: Trace, value: Value) -> str:
    """The text of a format, its numbers guarded."""
    try:
        return str(value.as_constant())
    except NotConstant:
        tracer.graph_break("format-of-unknown", type=value.describe())


def formatted(tracer: Trace, value: Value, spec: str) -> Value:
    """`format(value, spec)`."""
    if isinstance(value, UserObjectValue) and overrides(value.cls, "__format__"):
        made = class_attribute(tracer, value, value.cls, "__format__").call(tracer, (tracer.constant(spec),), {})
        return must_be_text(tracer, "__format__", made)
    if spec == "":
        return text_of(tracer, value, format)
    if isinstance(value, EarlyNumber):
        formatted(tracer, tracer.constant(value.number), spec)  # raises the error of a form that is of another type
        return text_of(tracer, value, lambda number: format(number, spec))
    if value.is_symbolic and value.python_type() is int:
        return text_of(tracer, value, lambda number: format(number, spec))
    try:
        return ConstantValue(format(value.as_constant(), spec))
    except NotConstant:
        if class_member(value.python_type(), "__format__") is object.__dict__["__format__"]:
            name = type_name(value.python_type())
            tracer.raise_error(TypeError, f"unsupported format string passed to {name}.__format__")
        if isinstance(value, TensorValue):
            return formatted_tensor(tracer, value, spec)
        return text_of(tracer, value, format, tracer.constant(spec))
    except (TypeError, ValueError) as error:
        tracer.raise_real(error)


def formatted_tensor(tracer: Trace, value: TensorValue, spec: str) -> Value:
    """`format(tensor, spec)`: of the number in it. Raises the error of a form that is of another type."""
    fake, kind = value.fake, value.python_type()
    if fake.dim() or kind is not torch.Tensor:
        tracer.raise_error(TypeError, f"unsupported format string passed to {type_name(kind)}.__format__")
    number = 0j if fake.is_complex() else 0.0 if fake.is_floating_point() else False if fake.dtype is torch.bool else 0
    try:
        format(number, spec)
    except (TypeError, ValueError) as error:
        tracer.raise_real(error)
    if spec.endswith("c"):  # a number that is no character raises
        tracer.graph_break("format-character")
    return text_of(tracer, value, format, tracer.constant(spec))


PERCENT = re.compile(r"%(%|[#0\- +]*[0-9]*(?:\.[0-9]+)?[diouxXeEfFgGcrsa])")


def percent(tracer: Trace, template: str, operand: Value) -> Value | None:
    """`template % operand`, where the operand holds what is no constant; None when the template is of another form."""
    if operand.python_type() is dict or "%" in PERCENT.sub("", template):
        return None
    given = native(operand)
    items = iter(given.items if isinstance(given, TupleValue) else [operand])
    parts: list[Value] = []
    end = 0
    for found in PERCENT.finditer(template):
        parts.append(tracer.constant(template[end : found.start()]))
        end = found.end()
        if found[1] == "%":
            parts.append(tracer.constant("%"))
            continue
        value = next(items, None)
        if value is None:
            tracer.raise_error(TypeError, "not enough arguments for format string")
        form = found[0]
        if isinstance(value, (SymbolicValue, EarlyNumber)):
            if isinstance(value, EarlyNumber):
                inserted(tracer, form, value.number)
            parts.append(NumberTextValue([(value, functools.partial(operator.mod, form))]))
            continue
        if found[1][-1] in "rsa":
            value = text_of(tracer, value, CONVERTERS[found[1][-1]])
            form = f"%{found[1][:-1]}s"
        if not value.is_constant and form != "%s":
            return None
        parts.append(inserted(tracer, form, value.as_constant()) if value.is_constant else value)
    if next(items, None) is not None and not _is_mapping(tracer, operand):
        tracer.raise_error(TypeError, "not all arguments converted during string formatting")
    return join([*parts, tracer.constant(template[end:])])


def _is_mapping(tracer: Trace, operand: Value) -> bool:
    """Whether `%` takes it as a mapping, of which nothing need be used."""
    kind = operand.python_type()
    rely_on_class(tracer, kind, "__getitem__")
    getter = class_member(kind, "__getitem__")
    if getter is MISSING or getter is collections.deque.__getitem__:
        return False
    return not issubclass(kind, (tuple, str))


def inserted(tracer: Trace, form: str, constant: object) -> Value:
    """`form % constant`."""
    try:
        return ConstantValue(form % constant)
    except (TypeError, ValueError, OverflowError) as error:
        tracer.raise_real(error)


def join(parts: list[Value]) -> Value:
    """The parts of an f-string, one after the other."""
    if all(part.is_constant for part in parts):
        return ConstantValue("".join(str(part.as_constant()) for part in parts))
    if all(part.is_constant or isinstance(part, NumberTextValue) for part in parts):
        pieces = (p.parts if isinstance(p, NumberTextValue) else [str(p.as_constant())] for p in parts)
        return NumberTextValue([piece for some in pieces for piece in some])
    return UnknownTextValue(None, tuple(parts))
