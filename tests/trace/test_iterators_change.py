"""Containers that change while they are iterated: noticed when and as CPython notices it."""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from tests.support.resuming import compiled, resumes
from tests.support.tracing import programs


def one() -> tuple[torch.Tensor]:
    return (torch.linspace(-1.0, 1.0, 6).reshape(2, 3),)


def deque_mutated(t, change):
    q = collections.deque([1, 2, 3])
    try:
        for x in q:
            t = t + x
            change(q, x)
    except RuntimeError as e:
        return t, str(e), list(q)
    return t


def turn(q, x):
    q.append(x)
    q.popleft()


def deque_grows(t):
    return deque_mutated(t, lambda q, x: q.append(x))


def deque_keeps_its_size(t):
    return deque_mutated(t, turn)


def deque_grows_at_its_end(t):
    return deque_mutated(t, lambda q, x: q.append(x) if x == 3 else None)


def dict_mutated(t):
    d = {1: 2, 3: 4}
    try:
        for x in d:
            t = t + x
            d[x + 10] = 1
    except RuntimeError as e:
        return t, str(e), d
    return t


def dict_mutated_keys(t):
    d = {1: 2, 3: 4, 5: 6}
    try:
        for x in d:
            t = t + x
            del d[x]
            d[x + 10] = 1
    except RuntimeError as e:
        return t, str(e), d
    return t, d


def dict_mutated_last(t):
    d = {1: 2, 3: 4}
    try:
        for x in d:
            t = t + x
            if x == 3:
                d[9] = 1
    except RuntimeError as e:
        return t, str(e), d
    return t, d


def dict_values_changed(t):
    d = {1: 2, 3: 4}
    out = []
    for k, v in d.items():
        d[3] = 50
        out.append((k, v))
    return t + 1, out


def dict_mutated_items(t):
    d = {1: 2, 3: 4}
    try:
        for k, v in d.items():
            t = t + v
            d.pop(k)
    except RuntimeError as e:
        return t, str(e), d
    return t, d


def odict_mutated(t):
    d = collections.OrderedDict([(1, 2), (3, 4)])
    out = []
    try:
        for k in d:
            out.append(k)
            d[9] = 1
    except RuntimeError as e:
        return t + 1, str(e), d, out
    return t, d, out


def odict_move(t):
    d = collections.OrderedDict([(1, 2), (3, 4)])
    out = []
    try:
        for k in d:
            out.append(k)
            if len(out) < 5:
                d.move_to_end(k)
    except RuntimeError as e:
        return t + 1, str(e), d, out
    return t + 2, d, out


def set_mutated(t):
    s = {1, 2, 3}
    try:
        for x in s:
            t = t + x
            s.add(x + 10)
    except RuntimeError as e:
        return t, str(e), s
    return t, s


def set_mutated_last(t):
    s = {1, 2, 3}
    try:
        for x in s:
            t = t + x
            if x == 3:
                s.discard(1)
    except RuntimeError as e:
        return t, str(e), s
    return t, s


def list_mutated(t):
    a = [1, 2, 3]
    for x in a:
        t = t + x
        if len(a) < 6:
            a.append(x)
    return t, a


def list_removed(t):
    a = [1, 2, 3, 4, 5]
    seen = []
    for x in a:
        seen.append(x)
        a.remove(x)
    return t + 1, a, seen


def list_reversed_mutated(t):
    a = [1, 2, 3, 4, 5]
    seen = []
    for x in reversed(a):
        seen.append(x)
        if len(a) > 2:
            a.pop()
    return t + 1, a, seen


def dict_mutated_after_break(t):
    d = {1: 2, 3: 4, 5: 6}
    try:
        for x in d:
            print(x)
            t = t + x
            if x == 3:
                d[x + 10] = 1
    except RuntimeError as e:
        return t, str(e), d
    return t


def iter_exhausted(t):
    items = [1]
    it = iter(items)
    first = list(it)
    items.append(2)
    return t + 1, first, list(it)


def dict_iter_after_end(t):
    d = {1: 1}
    it = iter(d)
    a = list(it)
    d[2] = 1
    return t + 1, a, list(it), next(it, "end")


def dict_iter_held(t):
    d = {1: 1, 2: 2}
    it = iter(d)
    next(it)
    d[3] = 1
    r = []
    for _ in range(2):
        try:
            r.append(next(it))
        except RuntimeError as e:
            r.append(str(e))
        except StopIteration:
            r.append("stop")
    return t + 1, r


def deque_states(t):
    found = []
    for change in CHANGES:
        q = collections.deque([1, 2, 3, 4])
        it = iter(q)
        next(it)
        change(q)
        try:
            found.append((next(it, "end"), next(it, "end")))
        except RuntimeError as error:
            found.append(str(error))
    return t + 1, found


CHANGES: list[Callable[[Any], Any]] = [
    lambda q: q.rotate(0),
    lambda q: q.rotate(4),
    lambda q: q.reverse(),
    lambda q: q.extend([]),
    lambda q: q.extendleft([]),
    lambda q: q.insert(0, 1),
    lambda q: q.remove(4),
    lambda q: q.clear(),
    lambda q: q.__delitem__(3),
    lambda q: q.__iadd__([]),
    lambda q: q.__setitem__(3, 9),
]


def reversed_views(t):
    found = []
    d = {1: 2, 3: 4}
    for view in (d, d.keys(), d.values(), d.items()):
        it = reversed(view)
        found.append(next(it))
        d[len(d) + 9] = 1
        try:
            next(it)
        except RuntimeError as error:
            found.append(str(error))
    return t + 1, found


@pytest.mark.parametrize("program", programs(globals()))
def test_like_eager(program: Callable[..., Any]) -> None:
    resumes(program, one)


def dict_argument(t, a):
    for k in a:
        t = t + 1
        a[k + "x"] = 1
    return t


def deque_argument(t, a):
    for _ in a:
        t = t + 1
        a.append(1)
    return t


@pytest.mark.parametrize("program, make", [(dict_argument, lambda: {"a": 1}), (deque_argument, collections.deque)])
def test_containers_of_the_caller(program: Callable[..., Any], make: Callable[[], Any]) -> None:
    resumes(program, lambda: (*one(), make()))


def bad(v):
    if v == 2:
        raise ValueError("two")
    return v


def bad_pair(v):
    return bad(v), v


FILLED: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (lambda: [0], lambda held: held.extend(map(bad, (1, 2, 3)))),
    (lambda: [0], lambda held: operator.iadd(held, (bad(i) for i in (1, 2, 3)))),
    (lambda: [0], lambda held: held.extend(len(held) for _ in range(3))),
    (lambda: [0], lambda held: held.__setitem__(slice(1, None), map(bad, (1, 2, 3)))),
    (lambda: {0}, lambda held: held.update([5], map(bad, (1, 2, 3)))),
    (lambda: {1, 2, 3}, lambda held: held.difference_update(map(bad, (1, 2, 3)))),
    (lambda: {1, 2, 3}, lambda held: held.intersection_update(map(bad, (1, 2, 3)))),
    (lambda: {1, 2, 3}, lambda held: held.symmetric_difference_update(map(bad, (1, 2, 3)))),
    (lambda: {0: 0}, lambda held: held.update(bad_pair(i) for i in (1, 2, 3))),
    (lambda: {0: 0}, lambda held: held.update((len(held), 1) for _ in range(3))),
    (lambda: collections.OrderedDict({0: 0}), lambda held: held.update(map(bad_pair, (1, 2, 3)))),
    (lambda: collections.Counter([0]), lambda held: held.update(map(bad, (1, 2, 3)))),
    (lambda: collections.deque([0]), lambda held: held.extend(map(bad, (1, 2, 3)))),
    (lambda: collections.deque([0]), lambda held: held.extendleft(bad(i) for i in (1, 2, 3))),
]
BREAKING = (5, 6, 7)  # sets that an iterator takes members from


WAYS: list[Callable[[list[int]], Any]] = [
    iter,
    reversed,
    enumerate,
    lambda items: zip(items, [1, 2]),
    lambda items: zip([7], items),
    lambda items: map(abs, items),
    lambda items: filter(None, items),
    lambda items: (item for item in items),
]


@pytest.mark.parametrize("way", range(len(WAYS)))
@pytest.mark.parametrize("there", [[], [3, 4]])
def test_a_list_that_grows_after_its_iterator_has_ended(way: int, there: list[int]) -> None:
    def after_a_break(t, items):
        it = WAYS[way](items)
        seen = list(it)
        armature.graph_break()
        items.append(5)
        return t + 1, seen, list(it)

    def outside(t, items):
        it = WAYS[way](items)
        return t + 1, list(it), it

    t = torch.ones(2)
    fn, _ = compiled(after_a_break)
    other, _ = compiled(outside)
    for _ in range(2):
        assert fn(t, list(there))[1:] == after_a_break(t, list(there))[1:]
        items = list(there)
        _, seen, it = other(t, items)
        items.append(5)
        assert (seen and list(it) == []) or not there


def with_a_gap(kind: Callable[[], Any]) -> Any:
    held = kind()
    held.update(a=1, b=2, c=3, d=4)
    del held["a"]
    return held


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.Counter])
def test_values_change_while_the_caller_iterates(kind: Callable[[], Any]) -> None:
    def change(t, held, key):
        held[key] += 1
        return t + held[key]

    def turned(t, held, position):
        held[position] += 1
        held.reverse()
        held.reverse()
        return t + held[position]

    t = torch.ones(2)
    (fn, _), (other, _) = compiled(change), compiled(turned)
    held, items = with_a_gap(kind), collections.deque([1, 2, 3])
    assert [fn(t, held, key)[0].item() for key in held] == [4, 5, 6]
    assert list(held.items()) == [("b", 3), ("c", 4), ("d", 5)]
    assert [other(t, items, position)[0].item() for position, _ in enumerate(items)] == [3, 4, 5]
    assert list(items) == [2, 3, 4]


@pytest.mark.parametrize("number", range(len(FILLED)))
def test_items_go_in_one_by_one(number: int) -> None:
    """What makes them sees the container grow, and where it raises, those before are in it."""
    make, fill = FILLED[number]

    def fills(t, held):
        try:
            fill(held)
        except ValueError as error:
            return t + len(held), str(error)
        return t + len(held)

    breaks = ["method-of-value"] if number in BREAKING else []
    assert resumes(fills, lambda: (*one(), make())).breaks == breaks


def first_goes(t, held):
    held.pop(next(iter(held))) if isinstance(held, dict) else held.remove(1)
    return t + len(held), iter(held), map(str, held)


@pytest.mark.parametrize("make", [lambda: {1: 2, 3: 4}, lambda: {1, 2, 3}, lambda: collections.deque([1, 2, 3])])
def test_an_iterator_over_what_has_changed_before(make: Callable[[], Any]) -> None:
    def listed(t, held):
        result, *iterators = first_goes(t, held)
        return result, iterators

    mine, _ = compiled(listed)
    theirs, ours = make(), make()
    (expected, iterators), (found, others) = listed(*one(), theirs), mine(*one(), ours)
    assert torch.equal(expected, found)
    assert [list(each) for each in iterators] == [list(each) for each in others]
    assert theirs == ours


def grown_then_looped_over(x, items):
    items.append(2)
    for item in items:
        print(item)
    return x + 1


def grown_in_each_round(x, items):
    for part in [items, [5]]:
        part.append(2)
        {print(item) for item in items}
    return x + 1


def grown_and_enumerated(x, items):
    items += [1, 2]
    for place, item in zip(items, enumerate(items)):
        print(place, item)
    return x + 1


def grown_then_looped_over_backwards(x, items):
    items.append(2)
    items.append(3)
    for item in reversed(items):
        print(item)
        x = x * 2 + item
    return x


def grown_backwards_and_returned(x, items):
    items += [1, 2, 3]
    it = reversed(items)
    first = next(it)
    print(first)
    return x + first, it


def grown_dict_backwards(x, items):
    numbers = dict.fromkeys(items, 1)
    print(numbers)
    numbers.update({1: 2, 3: 4})
    for key in reversed(numbers):
        print(key)
        x = x * 2 + key
    return x, [*reversed(numbers.items())]


@pytest.mark.parametrize("items", [[], [7], [7, 8, 9]])
@pytest.mark.parametrize(
    "program",
    [
        grown_then_looped_over,
        grown_in_each_round,
        grown_and_enumerated,
        grown_then_looped_over_backwards,
        grown_backwards_and_returned,
        grown_dict_backwards,
    ],
)
def test_a_list_of_the_caller_that_has_grown(program: Callable[..., Any], items: list[Any]) -> None:
    resumes(program, lambda: (torch.ones(2), list(items)))
