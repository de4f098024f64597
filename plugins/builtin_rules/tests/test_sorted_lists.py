"""bisect and heapq in a compiled function, as in eager mode: results, comparisons and errors."""

from __future__ import annotations

import bisect
import heapq
import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature.testing.handler_kit import break_id


class Card:
    asked: list[tuple[int, int]] = []

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __lt__(self, other: Card) -> bool:
        Card.asked.append((self.rank, other.rank))
        return self.rank < other.rank


def bisected(x: torch.Tensor) -> Any:
    found = []
    for fn in (bisect.bisect, bisect.bisect_left):
        found += [fn([1, 2, 2, 3], item) for item in (0, 1, 2, 2.5, 9)]
        found += [fn((1, 2, 3), 2, 1, 2), fn([1, 2], 3, hi=-1), fn([4, 3, 1], -3, key=lambda item: -item)]
    return x + sum(found), found


def inserted(x: torch.Tensor) -> Any:
    cards: list[Card] = []
    for rank in (5, 1, 3, 3, 2):
        bisect.insort(cards, Card(rank))
    names = [("b", x)]
    bisect.insort_left(names, ("a", x + 1), key=operator.itemgetter(0))
    bisect.insort_right(names, ("b", x + 2), key=operator.itemgetter(0))
    asked, Card.asked = Card.asked, []
    return names, [card.rank for card in cards], asked


def largest(x: torch.Tensor) -> Any:
    found: list[Any] = []
    for items in itertools.islice(itertools.permutations(range(5)), 0, 120, 7):
        found.append((heapq.nlargest(3, items), heapq.nlargest(2, items, key=lambda item: -item)))
    merged = list(heapq.merge([1, 4], [2, 3], reverse=False))
    cards = [Card(rank) for rank in (3, 1, 4, 1, 5, 9, 2)]
    largest = [card.rank for card in heapq.nlargest(3, cards)]
    asked, Card.asked = Card.asked, []
    return x + 1, found, merged, largest, asked


def test_heaps_with_the_largest_first_are_left_to_python() -> None:
    def function(x: torch.Tensor) -> Any:
        cards = [Card(rank) for rank in (3, 1, 4, 1, 5, 9, 2)]
        merged = list(heapq.merge([4, 1], [3, 2], reverse=True))
        return x + 1, heapq.nsmallest(3, [4, 2, 5, 1]), [card.rank for card in heapq.nsmallest(3, cards)], merged

    x, compiled = torch.ones(2), armature.compile(function, backend="eager")
    assert break_id(function, (x,))
    for _ in range(2):
        assert str(compiled(x)) == str(function(x))
    Card.asked.clear()


def called(x: torch.Tensor) -> Any:
    return operator.call(torch.sin, x), operator.call(lambda a, *, b: a * b, x, b=2), operator.call(dict, a=1)


def raised(x: torch.Tensor) -> Any:
    said = []
    for wrong in (
        lambda: bisect.bisect([1], 1, -1), lambda: heapq.heappop([]), lambda: heapq.heapreplace([], 1),
        lambda: bisect.insort([1], "a"), lambda: operator.call(operator.neg, "a"),
    ):  # fmt: skip
        try:
            wrong()
        except (ValueError, IndexError, TypeError) as error:
            said.append((type(error).__name__, str(error)))
    return x + len(said), said


FUNCTIONS = [bisected, inserted, largest, called, raised]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_as_in_eager_mode(function: Callable[[torch.Tensor], Any]) -> None:
    x = torch.ones(2)
    compiled = armature.compile(function, backend="eager", fullgraph=True)
    assert str(compiled(x)) == str(function(x))


def test_lists_that_are_given_change() -> None:
    def function(x: torch.Tensor, items: list[int]) -> Any:
        bisect.insort(items, 3)
        return x + bisect.bisect_left(items, 4), heapq.nsmallest(1, items)

    x, compiled = torch.ones(2), armature.compile(function, backend="eager", fullgraph=True)
    for given in ([1, 5], [1, 5], [4], []):
        mine, theirs = list(given), list(given)
        assert str(compiled(x, mine)) == str(function(x, theirs))
        assert mine == theirs


def test_an_order_that_only_a_run_tells_breaks() -> None:
    def function(x: torch.Tensor) -> Any:
        return x + bisect.bisect([x.sum(), x.sum() + 1], 1.5)

    assert break_id(function, (torch.ones(2),)) == "data-dependent-branch"
    assert torch.equal(armature.compile(function, backend="eager")(torch.ones(2)), function(torch.ones(2)))
