"""Describes a graph break in words: where it happened, why, and what to do."""

from __future__ import annotations

import linecache
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

import attrs

from armature.breaks.types import BreakEvent, FrameSummary

# The words shown for common facts when there is no program to take them from; other facts are shown by name.
STANDS_FOR: Mapping[str, str] = MappingProxyType({
    "test": "the condition",
    "type": "an object",
    "function": "a function",
    "method": "a method",
    "operation": "an operation",
    "name": "a name",
    "message": "the text of the error",
    "met": "what was met",
    "what": "what was met",
    "op": "an operation",
    "reason": "the reason, which a rule gives",
})  # fmt: skip


_ARTICLE = re.compile(
    r"\b(an?|the) <(?:an?|the) ", re.IGNORECASE
)  # an article of the text, then that of the words for a fact
NOT_EMPTY = STANDS_FOR.keys() - {"message"}  # an error may have no text


class _Placeholder(str):
    """Replaces a fact, whatever format a template asks for."""

    def __format__(self, form: str) -> str:
        return str(self)

    __repr__ = str.__str__


class _Facts(dict[str, object]):
    """Facts for a template. A missing fact stays visible as its placeholder, and so does an empty one, as in a program
    without source code."""

    def __getitem__(self, key: str) -> object:
        known = self.get(key)
        unknown = key in NOT_EMPTY and isinstance(known, str) and not known
        return self.__missing__(key) if unknown else super().__getitem__(key)

    def __missing__(self, key: str) -> _Placeholder:
        return _Placeholder(f"<{STANDS_FOR.get(key, key.replace('_', ' '))}>")


RESUMED = "the graph ends here; the instruction runs eagerly and tracing resumes after it"
EXTENDED = (
    "the graph ends here; {lines} run eagerly with it, since a graph would not pay there, and tracing resumes "
    "after them"
)


def resumed(event: BreakEvent, lines: Collection[int]) -> BreakEvent:
    """The event of a break after which tracing resumes. lines: those that run eagerly with it, none if no others do."""
    if not lines:
        return attrs.evolve(event, outcome=RESUMED)
    first, last = min(lines), max(lines)
    place = f"more instructions of line {last}" if first == last else f"lines {first} to {last}"
    return attrs.evolve(event, outcome=EXTENDED.format(lines=place))


def in_general(template: str) -> str:
    """A text of a break type without the facts of a program: `{test}` becomes `<the condition>`."""
    return _ARTICLE.sub(r"\1 <", fill(template, {}))


def fill(template: str, facts: Mapping[str, object]) -> str:
    """The template with its facts filled in; unchanged if that fails, which is an error of its author."""
    try:
        return template.format_map(_Facts(facts))
    except Exception:  # a plugin's template, with facts of any type
        return template


def where(event: BreakEvent) -> str:
    """File and line of the innermost frame, "" when the stack is empty."""
    return f"{event.stack[-1].file}:{event.stack[-1].line}" if event.stack else ""


def source_line(frame: FrameSummary) -> str:
    """The text of the user's line, stripped; read from the file when the summary lacks it."""
    return frame.text or linecache.getline(frame.file, frame.line).strip()


def stack_text(event: BreakEvent) -> str:
    """The user's stack, innermost last, as Python prints tracebacks."""
    lines = []
    for frame in event.stack:
        lines.append(f'  File "{frame.file}", line {frame.line}, in {frame.function}')
        if text := source_line(frame):
            lines.append(f"    {text}")
    return "\n".join(lines)


def explanation(event: BreakEvent) -> str:
    """Why the graph broke, with the facts filled in."""
    return fill(event.type.explanation, event.facts)


def hints(event: BreakEvent) -> tuple[str, ...]:
    """What to do, with the facts filled in."""
    return tuple(fill(hint.text, event.facts) for hint in event.type.hints)


def describe(event: BreakEvent) -> str:
    """The whole event as plain text, the location first."""
    lead = f"{where(event)}: " if event.stack else ""
    lines = [f"{lead}{event.type.title} [{event.type.id}]: {explanation(event)}"]
    lines += [stack_text(event)] if event.stack else []
    lines += [f"  What to do: {hint}" for hint in hints(event)]
    lines += [f"  More: {event.type.docs_url}"] if event.type.docs_url else []
    return "\n".join(lines)
