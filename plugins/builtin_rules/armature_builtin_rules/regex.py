"""Regular expressions while tracing: patterns and matches are immutable, so their results for known text are known."""

from __future__ import annotations

import functools
import inspect
import itertools
import re
from collections.abc import Callable, Hashable, Iterator
from typing import AnyStr, TypeVar

import attrs

from armature.plugin_api import (
    Args,
    AttrSource,
    BoundMethod,
    Call,
    ConstantValue,
    Identity,
    IteratorValue,
    Kwargs,
    NotConstant,
    Rebuilding,
    Source,
    Tracing,
    Value,
    ValueType,
    handles,
)

Pattern = re.Pattern[str] | re.Pattern[bytes]
Match = re.Match[str] | re.Match[bytes]
T = TypeVar("T")
TEXT = (str, bytes)
PLAIN = (*TEXT, int, bool, type(None), re.RegexFlag)
MATCHING = frozenset({"match", "fullmatch", "search"})
OF_PATTERNS = MATCHING | {"sub", "subn", "split", "findall", "finditer"}
OF_MATCHES = frozenset({"group", "groups", "groupdict", "start", "end", "span", "expand", "__getitem__"})
# The parameters of the module's functions after the pattern.
ONCE = ("string", "flags")
REPLACING = ("repl", "string", "count", "flags")
PARAMETERS: dict[Callable[..., object], tuple[str, ...]] = {
    **dict.fromkeys((re.match, re.fullmatch, re.search, re.findall, re.finditer), ONCE),
    **dict.fromkeys((re.sub, re.subn), REPLACING),
    re.split: ("string", "maxsplit", "flags"),
}
# functions with further positional parameters
WARNING = frozenset(fn for fn in PARAMETERS if fn.__code__.co_flags & inspect.CO_VARARGS)
DOUBLED = ("[[", "--", "&&", "~~", "||")  # `re` warns about these inside a character set


def plain(value: Value) -> object:
    """The object itself, if it is known, and of a builtin type or read by C code as one. Raises NotConstant."""
    if value.python_type() not in PLAIN and not isinstance(value, ConstantValue):
        raise NotConstant(value)
    return value.as_constant()


def run(tracer: Tracing, what: str, fn: Callable[..., T], args: Args, kwargs: Kwargs) -> tuple[T, Callable[[], T]]:
    """The result of a method for known arguments, and a function that computes it again."""
    try:
        call = functools.partial(fn, *map(plain, args), **{name: plain(value) for name, value in kwargs.items()})
    except NotConstant:
        tracer.graph_break("pattern-argument", method=what)
    try:
        return call(), call
    except Exception as error:
        tracer.raise_real(error)


@attrs.define(eq=False)
class PatternValue(Value):
    """A compiled pattern."""

    pattern: Pattern

    slots = frozenset({"__hash__"})

    def python_type(self) -> type:
        return re.Pattern

    def as_object(self) -> Pattern:
        return self.pattern

    def key(self, tracer: Tracing) -> Hashable:
        return self.pattern

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return attribute(tracer, self, self.pattern, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in OF_PATTERNS:
            return super().call_method(tracer, name, args, kwargs)
        if self.pattern.flags & re.LOCALE:
            tracer.graph_break("pattern-of-locale")
        by = replacement(name, args, kwargs)
        if by is not None:
            stand_in = replaced if name == "sub" else replaced_and_counted
            return tracer.calls.inline_python(stand_in, (self, *args), kwargs)
        found, remake = run(tracer, f"Pattern.{name}", getattr(self.pattern, name), args, kwargs)
        if name == "finditer":
            return iterator(found, remake)
        if name in MATCHING and found is not None:
            return MatchValue(found, remake)
        return tracer.as_value(found)


@attrs.define(eq=False)
class MatchValue(Value):
    """A match. remake: makes an equal one."""

    match: Match
    remake: Callable[[], object]

    mutable = True
    slots = frozenset({"__getitem__", "__hash__"})

    def python_type(self) -> type:
        return re.Match

    def key(self, tracer: Tracing) -> Hashable:
        if self.source is not None:
            return super().key(tracer)
        return Identity(self)

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return attribute(tracer, self, self.match, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in OF_MATCHES:
            return super().call_method(tracer, name, args, kwargs)
        return tracer.as_value(run(tracer, f"Match.{name}", getattr(self.match, name), args, kwargs)[0])

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(self.remake)
        out.call(0)


def attribute(tracer: Tracing, owner: Value, real: object, name: str) -> Value:
    """An attribute of a pattern or match, whose class is written in C."""
    try:
        held = getattr(real, name)
    except AttributeError as error:
        tracer.raise_real(error)
    if name.startswith("__"):
        tracer.graph_break("attribute-in-c", name=name, type=owner.describe())
    return BoundMethod(owner, name) if callable(held) else tracer.as_value(held)


def replacement(name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """The function called for each match. None if the replacement is text, or other arguments don't fit `sub`."""
    given = dict(zip(REPLACING, args)) | dict(kwargs)
    by: Value | None = given.pop("repl", None)
    if name not in ("sub", "subn") or by is None or len(given) + 1 < len(args) + len(kwargs):
        return None
    known = given.keys() <= {"string", "count"} and "string" in given
    usual = known and all(value.python_type() in (*TEXT, int, bool) for value in given.values())
    return by if usual and callable_in_class(by.python_type()) else None


def callable_in_class(kind: type) -> bool:
    """Whether objects of the class can be called."""
    return any("__call__" in vars(base) for base in kind.__mro__)


def replaced(
    pattern: re.Pattern[AnyStr], /, repl: Callable[[re.Match[AnyStr]], AnyStr | None], string: AnyStr, count: int = 0
) -> AnyStr:
    """`pattern.sub` by a function."""
    return replaced_and_counted(pattern, repl, string, count)[0]


def replaced_and_counted(
    pattern: re.Pattern[AnyStr], /, repl: Callable[[re.Match[AnyStr]], AnyStr | None], string: AnyStr, count: int = 0
) -> tuple[AnyStr, int]:
    """`pattern.subn` by a function."""
    parts, end, number = [], 0, 0
    for match in pattern.finditer(string):
        if count and number >= count:
            break
        if end < match.start():
            parts.append(string[end : match.start()])
        made = repl(match)
        if made is not None:
            parts.append(made)
        end = match.end()
        number += 1
    if end < len(string):
        parts.append(string[end:])
    return string[:0].join(parts), number


def nth(search: Callable[[], Iterator[object]], number: int) -> object:
    """One of the matches that an iterator would yield."""
    return next(itertools.islice(search(), number, None))


def advanced_iterator(search: Callable[[], Iterator[object]], number: int) -> object:
    """An iterator that has yielded this many matches."""
    made = search()
    for _ in range(number):
        next(made)
    return made


def iterator(found: Iterator[Match], search: Callable[[], Iterator[Match]]) -> Value:
    """The iterator that finditer returns."""
    matches = (MatchValue(match, functools.partial(nth, search, number)) for number, match in enumerate(found))

    def remake(out: Rebuilding, made: IteratorValue) -> None:
        out.null_function(functools.partial(advanced_iterator, search, made.returned))
        out.call(0)

    return IteratorValue(matches, type(found), remake)


def compiled(call: Call, pattern: Value, flags: Value | None) -> Value | None:
    """The pattern that `re.compile` returns; None if it warns about it, or it is not text."""
    if isinstance(pattern, PatternValue) and flags is None:
        return pattern
    try:
        chosen = 0 if flags is None else plain(flags)
        text = pattern.pattern if isinstance(pattern, PatternValue) else plain(pattern)
    except NotConstant:
        return None
    if not isinstance(text, TEXT) or not isinstance(chosen, int) or chosen & re.DEBUG or may_warn(text):
        return None
    try:
        return call.new_value(re.compile(text, chosen))
    except Exception as error:
        call.tracing.raise_real(error)


def may_warn(text: str | bytes) -> bool:
    """Whether `re` may warn about the pattern when compiling it."""
    shown = text if isinstance(text, str) else text.decode("latin-1")
    return "[" in shown and any(pair in shown for pair in DOUBLED)


@handles(re.compile)
def compile_pattern(call: Call, pattern: Value, flags: Value | None = None) -> Value | None:
    """A pattern of known text."""
    if isinstance(pattern, PatternValue) and flags is not None:
        return None
    return compiled(call, pattern, flags)


@handles(*PARAMETERS)
def at_once(call: Call, pattern: Value, *args: Value, **kwargs: Value) -> Value | None:
    """A function of the module `re`: a method of the pattern that it compiles."""
    names = PARAMETERS[call.fn]
    given = dict(zip(names, args)) | dict(kwargs)
    if len(given) < len(args) + len(kwargs) or not set(given) <= set(names) or "string" not in given:
        return None
    if call.fn in WARNING and len(args) > names.index("string") + 1:
        return None  # passing the rest by position is deprecated, and Python warns
    flags = given.pop("flags", None)
    if isinstance(pattern, PatternValue) and flags is not None:
        return None
    made = compiled(call, pattern, flags)
    return None if made is None else made.call_method(call.tracing, call.fn.__name__, (), given)


@handles(re.escape)
def escape(call: Call, pattern: Value) -> Value | None:
    """Text with special characters escaped."""
    return call.new_value(run(call.tracing, "re.escape", re.escape, (pattern,), {})[0])


def pattern_of_program(obj: Pattern, source: Source, tracer: Tracing) -> Value:
    """A pattern of the program."""
    if not source.is_fixed:
        tracer.guards.same(source, obj)
    return PatternValue(obj, source=source)


def match_of_program(obj: Match, source: Source, tracer: Tracing) -> Value:
    """A match of the program, which is determined by its string and pattern."""
    if type(obj.string) not in TEXT:  # a buffer, whose contents may change
        tracer.graph_break("match-in-changing-text", type=type(obj.string).__name__)
    tracer.objects.wrap(obj.re, AttrSource(source, "re"))
    for name in ("string", "regs", "pos", "endpos", "lastindex"):
        tracer.guards.equal(AttrSource(source, name), getattr(obj, name))
    return MatchValue(obj, lambda: obj, source=source)


VALUE_TYPES = (ValueType(re.Pattern, pattern_of_program), ValueType(re.Match, match_of_program))
