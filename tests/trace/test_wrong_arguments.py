"""Functions of Python called with arguments that they refuse: the program gets the error that Python would raise."""

from __future__ import annotations

import builtins
import collections  # noqa: F401 - named in the texts below
import functools  # noqa: F401 - named in the texts below
import itertools
import operator
import random
import re
from typing import Any, List, Union  # noqa: UP035 - the older spellings have types of their own

import pytest
import torch

import armature
from armature.plugins import manager

OLDER = List[int], Union[int, torch.Tensor]  # noqa: UP006, UP007


class Plain:
    pass


class Gives(Plain):
    def __init__(self, given: object) -> None:
        super().__init__(given)


class Odd:
    def __len__(self) -> int:
        return -1

    def __iter__(self) -> Any:
        return 5


CALLS = (
    "isinstance(x, 1)", "isinstance(x, None)", "isinstance(1, len)", "isinstance(x, (int, 1))",
    "isinstance(1, (int, 1))", "isinstance(x, int | None)", "isinstance(None, int | None)", "isinstance(x, list[int])",
    "isinstance(x, OLDER[0])", "isinstance(x, OLDER[1])", "isinstance(1, list[int] | int)", "isinstance(x, [int])",
    "isinstance(x, Plain())", "isinstance(x, x)", "isinstance(x, random)", "isinstance(x, slice(1))",
    "issubclass(int, 1)", "issubclass(int, None)", "issubclass(1, 1)", "issubclass(int, (str, None))",
    "Gives(1)", "Plain(1)", "object.__init__(Plain(), 1)", "object.__init_subclass__(1)",
    "random.Random(1).choice()", "random.Random(1).choices(population=[1, 2], k=2)", "random.Random([])",
    "random.Random(1).sample(k=1, population=[1, 2])", "random.setstate()", "random.setstate([])",
    "itertools.islice([1], -1)", "itertools.islice([1], -2)", "itertools.islice([1], 0, 'a')",
    "itertools.islice([1], 'a', 2)", "itertools.islice([1], 0, -1)", "itertools.islice([1], 0, 2, 0)", "random.getstate(1)", "random.choices(1)",
    "super(1)", "super(int, 2, 3)", "super(type, None)", "functools.cache(1)", "functools.lru_cache(3)(1)",
    "UnicodeDecodeError(1)", "UnicodeEncodeError('utf8', b'a', 0, 1, 'r')", "UnicodeTranslateError('a', 0, 1, 'r')",
    "SyntaxError('a')", "SyntaxError('a', 1)", "TabError('a', ())",
    "collections.namedtuple('Pair', -1)", "collections.namedtuple('Pair')", "collections.namedtuple('Pair', 'a a')",
    "operator.countOf(1, 1)", "operator.indexOf(None, 2)", "operator.indexOf([1, 2], 2)",
    "operator.length_hint(Plain(), Plain())", "operator.length_hint(Plain(), 1.5)", "operator.length_hint(Odd(), 2)",
)  # fmt: skip
STATEMENTS = (
    "try: raise KeyError\nexcept 1: pass", "try: raise KeyError\nexcept (KeyError, 1): pass",
    "try: raise KeyError\nexcept (1, KeyError): pass", "try: raise KeyError\nexcept int: pass",
    "match x:\n  case NOTHING(): r = 1", "match x:\n  case int(1, 2): r = 1", "match 5:\n  case int(1, 2): r = 1",
    "match 5:\n  case Plain(1): r = 1", "match Plain():\n  case Plain(1): r = 1", "raise 1", "raise KeyError from 1",
    "with x: pass", "for r in 1: pass", "a, b = 1", "r = [*1]", "r = {**1}", "r = print(*1)", "r = print(**1)",
    "assert isinstance(x, 1)", "del x.lacking", "x.lacking += 1", "x[1.5] = 1", "r = x[1.5]", "r = x @ None",
)  # fmt: skip
NOTHING = 5
GIVEN = (
    "x", "None", "1", "'a'", "[]", "Plain()", "(1, 'b')", "int", "Odd()", "{'a': 1}", "2.5", "-1", "[x, 1]", "b'z'",
    "len", "slice(None)", "ValueError('q')", "x.sum()",
)  # fmt: skip
# These tell of addresses, of the frame that asks, or do what a test should not.
LEFT_OUT = frozenset({"id", "hash", "dir", "vars", "globals", "locals"})
HANDLED = manager().tables().handler
NAMES = sorted(name for name, fn in vars(builtins).items() if name not in LEFT_OUT and name[0] != "_" and HANDLED(fn))
NAMES += [f"operator.{name}" for name in operator.__all__]
GRID = [f"{name}({', '.join(args)})" for name in NAMES for n in (1, 2) for args in itertools.product(GIVEN, repeat=n)]
random.Random(5).shuffle(GRID)
PARTS = len(GRID) // 300
BODY = """
def program(x):
    r = 0
    try:
        {statement}
        r = type(r).__name__, r if isinstance(r, (int, float, str, bytes, tuple, list, dict)) else 0
    except Exception as error:
        return x + 1, type(error).__name__, str(error)
    return x + 1, r
"""


def answer(run: Any) -> str:
    try:
        found = str(run(torch.ones(2)))
    except Exception as error:  # it came out of the program's handler
        found = f"left: {error!r}"
    return re.sub(r"0x[0-9a-f]+|grad_fn=<\w+>", "", found)


def differs(statement: str) -> str:
    """What the compiled program gives where that is not what eager mode gives."""
    namespace: dict[str, Any] = {**globals()}
    exec(BODY.format(statement=statement.replace("\n", "\n        ")), namespace)
    expected, mine = answer(namespace["program"]), answer(armature.compile(namespace["program"], backend="eager"))
    return "" if mine == expected else f"{statement}: {mine}, not {expected}"


@pytest.mark.parametrize("call", CALLS)
def test_calls(call: str) -> None:
    assert differs(f"r = {call}") == ""


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_statements(statement: str) -> None:
    assert differs(statement) == ""


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 8))])
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_like_eager(part: int) -> None:
    assert [text for call in GRID[part::PARTS] if (text := differs(f"r = {call}"))] == []
