"""itertools: what is checked, and what is taken from an iterator, when it is called and not when it is first asked."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import armature

REFUSED = (
    "combinations([1], -1)", "combinations([1], 'a')", "combinations(5, 1)", "permutations([1], -2)",
    "permutations([1], 2.0)", "product([1], repeat=-1)", "product([1], repeat='a')", "product(5)", "repeat(1, 'a')",
    "repeat(1, None)", "tee([1], -1)", "tee([1], 'a')", "islice([1], -1)", "islice([1], 'a')", "islice([1], 0, 5, 0)",
    "islice(5, 1)", "accumulate(5)", "cycle(5)", "pairwise(5)", "groupby(5)", "starmap(pow, 5)", "takewhile(pow, 5)",
    "compress(5, [1])", "zip_longest(5)", "chain.from_iterable(5)", "dropwhile(pow, 5)", "filterfalse(None, 5)",
    "count('a')", "combinations_with_replacement([1], -1)",
)  # fmt: skip
MADE = (
    "combinations(v, 2)", "combinations_with_replacement(v, 2)", "permutations(v)", "permutations(v, 2)",
    "product(v, [1, 2])", "product(v, repeat=2)", "accumulate(v)", "accumulate(v, initial=5)", "chain(v, [9])",
    "chain.from_iterable([v, v])", "cycle(v)", "compress(v, [1, 0, 1])", "dropwhile(lambda q: q < 2, v)",
    "filterfalse(None, v)", "groupby(v)", "islice(v, 1, None)", "pairwise(v)", "repeat(v, 2)", "repeat(object=v, times=-1)",
    "takewhile(lambda q: q < 3, v)", "zip_longest(v, [1], fillvalue=0)", "tee(v)[0]",
)  # fmt: skip
OF_WHAT = ("iter([1, 2, 3, 4])", "Counted()", "[1, 2, 3]", "(q for q in [1, 2, 3])")
CALL = """
def program(x):
    try:
        made = itertools.{call}
    except Exception as error:
        return x + 1, type(error).__name__, str(error)
    return x + 2, list(itertools.islice(made, 3))
"""
TAKE = """
def program(x):
    v = {v}
    made = itertools.{call}
    left = next(v, "none") if hasattr(v, "__next__") else getattr(v, "begun", 0)
    return x + 1, left, str([str(q)[:20] for q in itertools.islice(made, 4)]), getattr(v, "begun", 0)
"""


class Counted:
    def __init__(self) -> None:
        self.begun = 0

    def __iter__(self) -> Any:
        self.begun += 1
        return iter([1, 2, 3])


def check(source: str) -> None:
    namespace: dict[str, Any] = {**NAMESPACE}
    exec(source, namespace)
    program = namespace["program"]
    assert str(armature.compile(program, backend="eager")(torch.ones(2))) == str(program(torch.ones(2)))


@pytest.mark.parametrize("call", REFUSED)
def test_refused_at_the_call(call: str) -> None:
    check(CALL.format(call=call))


@pytest.mark.parametrize("v", OF_WHAT)
@pytest.mark.parametrize("call", MADE)
def test_taken_at_the_call(call: str, v: str) -> None:
    check(TAKE.format(call=call, v=v))


ITERATORS = (
    *(f"itertools.{call}" for call in MADE), "zip(v, 'abcd')", "enumerate(v, 1)", "map(str, v)", "filter(None, v)", "iter(v)",
    "(q for q in v)", "given(v)",
)  # fmt: skip
GIVEN = (*OF_WHAT, "OwnIterator()", "zip([1, 2, 3])", "{1: 2, 3: 4}")
LEAVE = """
def program(x):
    v = {v}
    made = {call}
    first = [str(next(made, "end"))[:14] for _ in range({taken})]
    begun = getattr(v, "begun", 0)
    print("break")
    left = next(v, "none") if hasattr(v, "__next__") else 0
    return x + 1, first, begun, str(left), show(made), getattr(v, "begun", 0)
"""
GIVE = """
def program(x):
    v = {v}
    made = {call}
    first = [str(next(made, "end"))[:14] for _ in range({taken})]
    return x + 1, first, v, made
"""


class OwnIterator:
    def __init__(self) -> None:
        self.begun = self.given = 0

    def __iter__(self) -> Any:
        self.begun += 1
        return self

    def __next__(self) -> int:
        self.given += 1
        if self.given > 3:
            raise StopIteration
        return self.given


def given(v: Any) -> Iterator[Any]:
    yield from v


def show(made: Iterator[Any]) -> list[str]:
    return [str(one)[:14] for one in itertools.islice(made, 4)]


def outside(run: Any) -> str:
    """What a program has given, and what its iterators give then."""
    try:
        result, *found = run(torch.ones(2))
        if len(found) == 3:
            first, v, made = found
            begun = getattr(v, "begun", 0)
            left = show(made), getattr(v, "begun", 0), next(v, "none") if hasattr(v, "__next__") else 0
            found = [first, begun, *left]
    except TypeError as error:
        return str(error)
    return re.sub("0x[0-9a-f]+", "", f"{result.tolist()} {found}")


@pytest.mark.parametrize("call", ITERATORS)
def test_an_iterator_that_leaves_the_frame(call: str) -> None:
    """Through a break, or as the result: what it was made of was begun once, and nothing is taken again."""
    for source, v, taken in itertools.product((LEAVE, GIVE), GIVEN, (0, 1)):
        namespace: dict[str, Any] = {**NAMESPACE}
        exec(source.format(call=call, v=v, taken=taken), namespace)
        program = namespace["program"]
        assert outside(armature.compile(program, backend="eager")) == outside(program), (source, v, taken)


NAMESPACE = {"itertools": itertools, "Counted": Counted, "OwnIterator": OwnIterator, "given": given, "show": show}
