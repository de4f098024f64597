"""Text: str, repr, format, `str.format` and `%`; identity: id and hash."""

from __future__ import annotations

import collections
import functools
import operator
import re
import string
from collections.abc import Callable

import attrs

from armature.plugin_api import (
    MISSING,
    Args,
    Call,
    Kwargs,
    NotConstant,
    SymbolicNumber,
    TracedTensor,
    Tracing,
    TupleValue,
    Value,
    VaryingNumber,
    class_member,
    handles,
    is_by_address,
    native,
    rely_on_class,
    type_name,
)
from armature_builtin_rules.addresses import AddressValue, HashValue
from armature_builtin_rules.functions.text_values import formatted, join, text_of

CONVERTERS: dict[str, Callable[[object], str]] = {"s": str, "r": repr, "a": ascii}
FIELD = re.compile(r"\.([^.\[]+)|\[([^\]]+)\]")
PERCENT = re.compile(r"%(%|[#0\- +]*[0-9]*(?:\.[0-9]+)?[diouxXeEfFgGcrsa])")


@handles(repr)
def representation(call: Call, value: Value, /) -> Value:
    """`repr(value)`."""
    return text_of(call.tracing, value, repr)


@handles(ascii)
def ascii_representation(call: Call, value: Value, /) -> Value:
    """`ascii(value)`."""
    return text_of(call.tracing, value, ascii)


@handles(str)
def text(call: Call, value: Value | None = None, *decoding: Value) -> Value:
    """`str(value)`, or decoded bytes."""
    if decoding and value is not None:
        return call.fold(str, *(part.as_constant() for part in (value, *decoding)))
    return call.constant("") if value is None else text_of(call.tracing, value, str)


@handles(format)
def format_of(call: Call, value: Value, spec: Value | None = None) -> Value:
    """`format(value, spec)`."""
    if spec is not None and not issubclass(spec.python_type(), str):
        given = "None" if spec.python_type() is type(None) else type_name(spec.python_type())
        call.tracing.raise_error(TypeError, f"format() argument 2 must be str, not {given}")
    return formatted(call.tracing, value, "" if spec is None else str(spec.as_constant()))


@handles(str.format)
def format_method(call: Call, template: Value, /, *args: Value, **kwargs: Value) -> Value | None:
    """`template.format(*args, **kwargs)`, if an argument is not a constant."""
    if template.is_constant and not all(value.is_constant for value in (*args, *kwargs.values())):
        return _fields(call.tracing, str(template.as_constant()), Arguments(args, kwargs), 2)
    return None


@attrs.define(eq=False)
class Arguments:
    """The arguments of `str.format`. automatic: the number of fields so far that were numbered automatically;
    numbered: whether a field had a number."""

    args: Args
    kwargs: Kwargs
    automatic: int = 0
    numbered: bool = False

    def get(self, tracer: Tracing, first: int | str) -> Value:
        """The argument for a field; an empty name takes the next one."""
        if first == "":
            first, self.automatic = self.automatic, self.automatic + 1
        elif isinstance(first, int):
            self.numbered = True
        known = first < len(self.args) if isinstance(first, int) else first in self.kwargs
        if not known or (self.numbered and self.automatic):  # an error whose wording differs between versions
            tracer.graph_break("format-arguments", field=first)
        return self.args[first] if isinstance(first, int) else self.kwargs[first]


def string_parts(field: str) -> tuple[int | str, list[tuple[bool, int | str]]]:
    """The argument that a format field names, and the attributes (true) and items that it reads."""
    first = re.split(r"[.\[]", field, maxsplit=1)[0]
    rest: list[tuple[bool, int | str]] = []
    for found in FIELD.finditer(field, len(first)):
        name = found[1] or found[2]
        rest.append((found[1] is not None, int(name) if found[1] is None and name.isdigit() else name))
    return int(first) if first.isdigit() else first, rest


def _parsed(tracer: Tracing, template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        found = list(string.Formatter().parse(template))
    except ValueError:
        found = None
    if found is None or any(conversion and conversion not in CONVERTERS for *_, conversion in found):
        tracer.graph_break("format-template", template=template)
    return found


def _fields(tracer: Tracing, template: str, given: Arguments, depth: int) -> Value:
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


def known_text(tracer: Tracing, value: Value) -> str:
    """The text of a format, with its numbers guarded."""
    try:
        return str(value.as_constant())
    except NotConstant:
        tracer.graph_break("format-of-unknown", type=value.describe())


@handles(str.__mod__)
def percent(call: Call, template: Value, operand: Value, /) -> Value | None:
    """`template % operand`, if the operand has members that are not constants; None for a template of another form."""
    if not template.is_constant or operand.is_constant or operand.python_type() is dict:
        return None
    text, tracer = str(template.as_constant()), call.tracing
    if "%" in PERCENT.sub("", text):
        return None
    given = native(operand)
    items = iter(given.items if isinstance(given, TupleValue) else [operand])
    parts: list[Value] = []
    end = 0
    for found in PERCENT.finditer(text):
        parts.append(call.constant(text[end : found.start()]))
        end = found.end()
        if found[1] == "%":
            parts.append(call.constant("%"))
            continue
        value = next(items, None)
        if value is None:
            tracer.raise_error(TypeError, "not enough arguments for format string")
        part = inserted(call, found[0], value)
        if part is None:
            return None
        parts.append(part)
    if next(items, None) is not None and not is_mapping(tracer, operand):
        tracer.raise_error(TypeError, "not all arguments converted during string formatting")
    return join([*parts, call.constant(text[end:])])


def inserted(call: Call, form: str, value: Value) -> Value | None:
    """`form % value` for one value; None if tracing does not know enough about it."""
    if isinstance(value, VaryingNumber):
        call.fold(operator.mod, form, value.number)  # raises the error for a format of another type
    if isinstance(value, (SymbolicNumber, VaryingNumber)):
        return text_of(call.tracing, value, functools.partial(operator.mod, form))
    if form[-1] in CONVERTERS:
        value = text_of(call.tracing, value, CONVERTERS[form[-1]])
        form = f"{form[:-1]}s"
    if value.is_constant:
        return call.fold(operator.mod, form, value.as_constant())
    return value if form == "%s" else None


def is_mapping(tracer: Tracing, operand: Value) -> bool:
    """Whether `%` treats it as a mapping, of which nothing need be used."""
    kind = operand.python_type()
    rely_on_class(tracer, kind, "__getitem__")
    getter = class_member(kind, "__getitem__")
    if getter is MISSING or getter is collections.deque.__getitem__:
        return False
    return not issubclass(kind, (tuple, str))


@handles(str.join)
def joined(call: Call, separator: Value, items: Value, /) -> Value | None:
    """Join the items of an iterable, even if one is not known while tracing, as in f-strings."""
    if not separator.is_constant:
        return None
    refusal, kind = "can only join an iterable", items.python_type()
    if not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
        call.tracing.raise_error(TypeError, refusal)
    given = call.tracing.python.in_sequence(items, refusal)
    if all(item.is_constant for item in given):
        return call.fold(str.join, separator.as_constant(), [item.as_constant() for item in given])
    for position, item in enumerate(given):
        if not issubclass(item.python_type(), str):
            text = f"sequence item {position}: expected str instance, {type_name(item.python_type())} found"
            call.tracing.raise_error(TypeError, text)
    return join([part for item in given for part in (separator, item)][1:])


@handles(str.translate)
def translated(call: Call, text: Value, table: Value, /) -> Value | None:
    """`text.translate(table)` with a dict."""
    if not text.is_constant or table.python_type() is not dict:
        return None
    copy = call.inline(dict, table)  # all its items are known
    return call.fold(str.translate, text.as_constant(), copy.as_constant())


@handles(id)
def address(call: Call, value: Value) -> Value:
    """The address of an object, which tracing does not know."""
    if value.is_constant:
        call.graph_break("id-of-constant", type=value.describe())
    return AddressValue(value)


@handles(hash)
def hash_of(call: Call, value: Value) -> Value:
    """The hash of a constant; for a tensor, its address; for other objects that tracing can't hash, some number."""
    key = value.key(call.tracing)
    if not is_by_address(key):
        return call.constant(hash(key))
    return AddressValue(value) if isinstance(value, TracedTensor) else HashValue(value)
