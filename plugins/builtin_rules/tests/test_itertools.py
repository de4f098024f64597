"""itertools: what is checked, and what is taken from an iterator, when it is called and not when it is first asked."""

from __future__ import annotations

import itertools
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
    namespace: dict[str, Any] = {"itertools": itertools, "Counted": Counted}
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
