"""Sets of the caller: what they hold, in which order, and what has to be the same again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

import armature
from armature.frame.guards.values import layout, same

X = torch.arange(4.0)


class Numbered:
    def __init__(self, number, factor=1):
        self.number, self.factor = number, factor

    def __hash__(self):
        return self.number % 4

    def __eq__(self, other):
        return isinstance(other, Numbered) and self.number == other.number


class Plain:
    def __init__(self, factor):
        self.factor = factor


class Twice(set):
    def add(self, item):
        super().add(item)
        super().add(str(item))


def in_order(value: Any) -> Any:
    """What can be compared: types, and sets by their order."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (set, frozenset, list, tuple)):
        return type(value), [in_order(item) for item in value]
    return type(value), value if isinstance(value, (int, str, float, type)) else id(value)


def like_eager(function: Callable[..., Any], make: Callable[[], Iterable[tuple[Any, ...]]]) -> None:
    """All calls give and change what they do in eager; `make` gives the arguments of the calls."""
    expected = [(in_order(function(*args)), len(args[1]), in_order(args[1:])) for args in make()]
    for dynamic in (None, True):
        compiled = armature.compile(function, backend="eager", dynamic=dynamic)
        found = [(in_order(compiled(*args)), len(args[1]), in_order(args[1:])) for args in make()]
        for (result, length, _), (their_result, their_length, _) in zip(found, expected, strict=True):
            assert (result, length) == (their_result, their_length)
        if not any(isinstance(member, (Numbered, Plain)) for args in make() for member in args[1]):
            assert [left for *_, left in found] == [left for *_, left in expected]


def add_an_equal_one(t, s):
    s.add(Numbered(5))
    s.discard(Numbered(1))
    return t + len(s), Numbered(9) in s


def test_members_that_are_equal_by_their_class() -> None:
    like_eager(add_an_equal_one, lambda: [(X, {Numbered(1), Numbered(5)}), (X, {Numbered(9)}), (X, set())])


def test_a_tensor_that_is_in_a_set_and_is_an_argument() -> None:
    def add(t, s):
        s.add(t)
        return t + len(s)

    compiled = armature.compile(add, backend="eager")
    first, second = X + 1, X + 2
    for tensor, held in ((first, {first}), (first, {second}), (second, {first, second}), (first, set())):
        assert torch.equal(compiled(tensor, set(held)), add(tensor, set(held)))


def multiply(t, s):
    for item in s:
        t = t * item.factor
    return t


def test_equal_members_that_are_other_objects() -> None:
    like_eager(multiply, lambda: [(X, {Numbered(1, factor)}) for factor in (2, 3, 4)])
    like_eager(multiply, lambda: [(X, {Plain(factor)}) for factor in (2, 3, 4)])


def test_a_set_of_a_derived_class_that_stays_and_changes() -> None:
    def grow(t, s):
        count = len(s)
        s.add(count)
        return t + count

    def make():
        one, other = Twice([1]), {Plain(1)}
        return [(X, one)] * 3 + [(X, other)] * 3

    compiled = armature.compile(grow, backend="eager")
    for ours, theirs in zip(make(), make(), strict=True):
        assert torch.equal(compiled(*ours), grow(*theirs))


def test_equal_members_of_another_type() -> None:
    def members(t, s):
        return t + 1, list(s)

    like_eager(
        members, lambda: [(X, s) for s in ({1}, {True}, {1.0}, {0.0}, {-0.0}, frozenset({1}), frozenset({True}))]
    )


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({1, "a", (2, 0.5)}, {(2, 0.5), "a", 1}, True),
        ({1}, {True}, False),
        ({(1,)}, {(True,)}, False),
        ({frozenset({0.0})}, {frozenset({-0.0})}, False),
        ({math.nan}, {math.nan}, True),
        ({math.nan}, {float("nan")}, False),
        ({Numbered(1)}, {Numbered(1)}, False),
        (frozenset({1}), {1}, False),
    ],
)
def test_sets_that_are_the_same(one: object, other: object, expected: bool) -> None:
    assert same(one, other) is expected


def emptied(members, gone):
    """A set that something was taken out of: its copies lie as if the members had been added one by one."""
    made = {*members, *gone}
    for item in gone:
        made.discard(item)
    return made


def follow(t, s):
    return t + 1, list(s | {1}), s | {2}, s.copy(), list(s - {100})


def add_to_an_empty_one(t, s, given):
    s |= given
    given.add(7)
    s.add(23)
    return t + 1, s


def test_what_was_in_a_set_tells_in_the_order_of_its_copies() -> None:
    whole, less = {7, 15}, emptied([7, 15], [3])
    assert list(whole) == list(less)
    assert list(whole.copy()) != list(less.copy())
    assert layout(whole) != layout(less)
    assert layout(whole) == layout({7, 15})
    like_eager(follow, lambda: [(X, {7, 15}), (X, emptied([7, 15], [3])), (X, {15, 7})])
    like_eager(add_to_an_empty_one, lambda: [(X, set(), {7, 15}), (X, set(), emptied([7, 15], [3]))])
    like_eager(add_to_an_empty_one, lambda: [(X, set(), emptied([7, 15], [3])), (X, set(), {7, 15})])


def combine(t, s, u):
    results = s ^ u, u - s, s & u, s | u
    s ^= u
    u -= results[2]
    return t + 1, results, s, u


def with_itself(t, s):
    s.update(s)
    before = list(s)
    s ^= s
    s.add(1)
    s -= s
    return t + 1, before, s


def change_and_combine(t, s):
    s.add(len(s) * 8)
    return t + 1, s | {2}, s.copy(), frozenset(s)


def some(number: int) -> set[int]:
    choose = random.Random(number)
    return {choose.randrange(200) for _ in range(choose.randrange(30))}


@pytest.mark.parametrize("number", range(0, 12, 3))
def test_the_order_in_which_sets_leave_the_frame(number: int) -> None:
    numbers = range(number, number + 3)
    like_eager(combine, lambda: [(X, some(n), some(n + 50)) for n in numbers])
    like_eager(with_itself, lambda: [(X, some(n)) for n in numbers] + [(X, {1, 8, 16})])
    like_eager(change_and_combine, lambda: [(X, some(n)) for n in numbers] + [(X, {1, 9, 17})])


def test_a_frozenset_is_its_own_copy() -> None:
    def copies(t, s):
        return t + 1, s.copy() is s, frozenset(s) is s, s.union() is s

    compiled = armature.compile(copies, backend="eager", fullgraph=True)
    assert compiled(X, frozenset({1, 2}))[1:] == copies(X, frozenset({1, 2}))[1:] == (True, True, False)
    assert compiled(X, {1, 2})[1:] == copies(X, {1, 2})[1:]


def test_each_nan_is_a_member() -> None:
    def add(t, s):
        s.add(float("nan"))
        s.add(math.nan)
        s.add((math.nan, 1))
        return t + len(s), math.nan in s, float("nan") in s

    compiled, ours, theirs = armature.compile(add, backend="eager"), {1}, {1}
    for _ in range(3):
        expected = add(X, theirs)
        assert in_order(compiled(X, ours)) == in_order(expected)
        assert len(ours) == len(theirs)


class Empty:
    pass


@pytest.mark.parametrize("left", [{1}, frozenset({1}), 1, (1,), None, {1: 2}, Empty()])
def test_errors_of_operators_in_place_say_so(left: object) -> None:
    def combine(t, left, right):
        said = []
        for change in (intersect, add, power):
            try:
                change(left, right)
            except TypeError as error:
                said.append(str(error))
        return t + 1, said

    def intersect(left, right):
        left &= right

    def add(left, right):
        left += right

    def power(left, right):
        left **= right

    compiled = armature.compile(combine, backend="eager")
    for right in ("a", None):
        assert compiled(X, left, right)[1] == combine(X, left, right)[1]
