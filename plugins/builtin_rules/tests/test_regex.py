"""Regular expressions in a compiled function: one graph where the text is known, and what eager mode gives."""

from __future__ import annotations

import copy
import re
import string
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature.testing.handler_kit import break_id

Function = Callable[..., Any]
WORD = re.compile(r"(?P<first>\w)(\w*)")
NUMBER = re.compile(rb"\d+")


def by_pattern(x: torch.Tensor) -> Any:
    found = WORD.match("abc de")
    assert found is not None
    return x + found.end(), found.group(), found[1], found.groups(), found.span(2), found.groupdict(), found.lastindex


def by_module(x: torch.Tensor) -> Any:
    hits = re.findall("a.", "abacad"), re.split(",", "a,b,c", maxsplit=1), re.sub("a", r"<\g<0>>", "banana")
    return x + len(hits), hits, re.search("x", "abc") is None, re.fullmatch("A+", "aaa", re.I | re.M) is not None


def compiled_inside(x: torch.Tensor) -> Any:
    pattern = re.compile("n(a)", flags=re.IGNORECASE)
    return x + pattern.groups, pattern.flags, pattern.subn("o", "banANa", count=1), pattern is re.compile("n(a)", re.I)


def iterated(x: torch.Tensor) -> Any:
    for found in WORD.finditer("one two three"):
        x = x + found.start() * len(found["first"])
    return x, [found.group() for found in re.finditer("[a-c]", "abcd")]


def by_function(x: torch.Tensor) -> Any:
    seen = []

    def upper(found: Any) -> str | None:
        seen.append(found.start())
        return found.group().upper() if found.start() else None

    names = WORD.sub(upper, "one two three"), re.subn("", lambda found: "-", "ab"), WORD.subn(upper, "a b c", 2)
    return x + len(seen), names, seen, re.sub("b", upper, "abbb", count=1)


def kept(x: torch.Tensor) -> Any:
    found, rest = WORD.search("  ab"), WORD.finditer("a b c")
    next(rest)
    return x + 1, found, found, rest, WORD, re.compile("left")


def in_bytes(x: torch.Tensor) -> Any:
    return x + len(NUMBER.split(b"a1b22c")), NUMBER.sub(b"#", b"a1b22c"), re.escape("a.b"), re.escape(b"*")


def in_the_library(x: torch.Tensor) -> Any:
    text = textwrap.dedent("  a\n    b") + textwrap.indent("c", "- ")
    return x + len(text), text, string.Template("$a ${b} $$").substitute(a=1, b="c")


def raised(x: torch.Tensor) -> Any:
    said = []
    for wrong in (
        lambda: re.compile("("), lambda: WORD.match("a").group(7), lambda: WORD.sub("\\9", "a"), lambda: re.sub("a", 3, "a"),
        lambda: WORD.search(3), lambda: re.sub("a", lambda found: 3, "a"), lambda: WORD.nothing,
    ):  # fmt: skip
        try:
            wrong()
        except (re.error, IndexError, TypeError, AttributeError) as error:
            said.append((type(error).__name__, str(error)))
    return x + len(said), said


def asked(x: torch.Tensor) -> Any:
    found = WORD.match("ab")
    facts = (
        isinstance(found, re.Match),
        isinstance(WORD, re.Pattern),
        bool(found),
        found == WORD.match("ab"),
        found == found,
    )
    return x + 1, facts, {WORD: 1}[re.compile(WORD.pattern)], found.re is WORD, found.string


def shown(result: Any) -> str:
    def plain(item: Any) -> Any:
        if isinstance(item, (tuple, list)):
            return [plain(part) for part in item]
        return list(map(plain, item)) if hasattr(item, "__next__") else item

    return str(plain(result))


@pytest.mark.parametrize(
    "function",
    [by_pattern, by_module, compiled_inside, iterated, by_function, kept, in_bytes, in_the_library, raised, asked],
    ids=lambda fn: fn.__name__,
)
def test_as_in_eager_mode(function: Function) -> None:
    x = torch.ones(2)
    assert shown(armature.compile(function, backend="eager", fullgraph=True)(x)) == shown(function(x))


def test_one_match_stays_one_object() -> None:
    _, first, second, rest, *_ = armature.compile(kept, backend="eager", fullgraph=True)(torch.ones(2))
    assert first is second
    assert type(rest) is type(WORD.finditer(""))


def test_a_pattern_that_is_replaced_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2)
    compiled = armature.compile(by_pattern, backend="eager")
    compiled(x)
    monkeypatch.setitem(globals(), "WORD", re.compile("(?P<other>..)(.)"))
    assert shown(compiled(x)) == shown(by_pattern(x))


def given(x: torch.Tensor, what: Any, text: str = "aab") -> Any:
    found = what.match(text) if isinstance(what, re.Pattern) else what
    return x + found.end(), found.group(), found.re.pattern, found.string


def test_patterns_matches_and_text_that_are_given_are_guarded() -> None:
    x, compiled = torch.ones(2), armature.compile(given, backend="eager", fullgraph=True)
    some, other = re.compile("a+"), re.compile(".*")
    calls: list[tuple[Any, ...]] = [
        (some,), (other,), (some, "a"), (some.match("aab"),), (some.match("aab"),), (some.match("aab", 1),),
        (other.match("aab"),), (some.match("aac"),), (some.match("aab", 0, 1),),
    ]  # fmt: skip
    for call in calls:
        assert shown(compiled(x, *call)) == shown(given(x, *call))


def test_a_break_between_matches() -> None:
    def function(x: torch.Tensor) -> Any:
        texts = []
        for found in WORD.finditer("one two"):
            armature.graph_break()
            x = x + found.end()
            texts.append(found.group())

        def break_here(found: Any) -> str:
            armature.graph_break()
            return found[0].upper()

        return x, texts, WORD.sub(break_here, "a b")

    x = torch.ones(2)
    assert shown(armature.compile(function, backend="eager")(x)) == shown(function(x))


class Text(str):
    pass


@pytest.mark.parametrize(
    "function",
    [
        lambda x: WORD.match(str(x)),
        lambda x: WORD.match(Text("a")),
        lambda x: re.sub("a", Text("b"), "a"),
        lambda x: re.compile("a", re.DEBUG),
        lambda x: re.compile(b"a", re.LOCALE).match(b"a"),
        lambda x: re.compile("[a||b]"),
        lambda x: WORD.match(bytearray(b"a")),
    ],
)
@pytest.mark.filterwarnings("ignore:Possible set union")
def test_what_is_not_known_breaks(function: Function) -> None:
    assert break_id(function, (torch.ones(2),))


def test_what_python_warns_of_is_said_by_python() -> None:
    compiled = armature.compile(lambda x: (x + 1, re.compile("[a||b]")), backend="eager")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        re.purge()
        compiled(torch.ones(2))
    assert [warning.category for warning in seen] == [FutureWarning]


def test_copies_are_the_thing_itself() -> None:
    def function(x: torch.Tensor) -> Any:
        return x + 1, copy.deepcopy(WORD) is WORD, copy.copy([WORD])[0] is WORD

    x = torch.ones(2)
    assert shown(armature.compile(function, backend="eager", fullgraph=True)(x)) == shown(function(x))
