"""Iterators that live across a graph break: the rest of the frame is traced with what they have still to give."""

# ruff: noqa: C417 - it is what is tested

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from tests.support.resuming import resumes

LIST = [1, 2, 3, 4]


def one() -> tuple[torch.Tensor]:
    return (torch.linspace(-1.0, 1.0, 6).reshape(2, 3),)


def over_a_tuple(t):
    it = iter((t, t * 2, t * 3))
    a = next(it)
    armature.graph_break()
    return a + next(it), list(it), list(it)


def over_a_list(t):
    it = iter([t, t * 2, t * 3])
    a = next(it)
    armature.graph_break()
    return a + next(it), it


def over_a_list_of_the_program(t):
    it = iter(LIST)
    a = t * next(it)
    armature.graph_break()
    return a * next(it), [*it], next(it, None)


def over_a_range(t):
    it = iter(range(5))
    a = t * next(it)
    armature.graph_break()
    return a * next(it), list(it)


def numbered(t):
    it = enumerate([t, t * 2, t * 3], 5)
    i, a = next(it)
    armature.graph_break()
    j, b = next(it)
    return a * i + b * j, list(it)


def zipped(t):
    it = zip([t, t * 2, t * 3], (1, 2, 3))
    a, i = next(it)
    armature.graph_break()
    b, j = next(it)
    return a * i + b * j, list(it)


def numbered_pairs(t):
    it = enumerate(zip([t, t * 2, t * 3], range(3)))
    i, (a, j) = next(it)
    armature.graph_break()
    k, (b, m) = next(it)
    return a * i + b * k + j + m, list(it)


def backwards(t):
    lists, tuples, ranges = reversed([t, t * 2, t * 3]), reversed((t, t * 2, t * 3)), reversed(range(4))
    a = next(lists) + next(tuples) * next(ranges)
    armature.graph_break()
    return a + next(lists) + next(tuples) * next(ranges), list(lists), list(tuples), list(ranges)


def mapped(t):
    it = map(lambda v: v * 2, [t, t + 1, t + 2])
    a = next(it)
    armature.graph_break()
    return a + next(it), list(it)


def filtered(t):
    it = filter(None, [1, 0, 2, 0, 3])
    a = t * next(it)
    armature.graph_break()
    return a * next(it), list(it)


def of_a_dict(t):
    held = {"a": t, "b": t * 2, "c": t * 3}
    keys, values, items = iter(held), iter(held.values()), iter(held.items())
    a = held[next(keys)] + next(values) + next(items)[1]
    armature.graph_break()
    return a + held[next(keys)] + next(values) + next(items)[1], list(keys), list(values), list(items)


def of_an_ordered_dict(t):
    held = OrderedDict(a=t, b=t * 2, c=t * 3)
    keys, values, items = iter(held), reversed(held.values()), iter(held.items())
    a = held[next(keys)] + next(values) + next(items)[1]
    armature.graph_break()
    return a + held[next(keys)] + next(values) + next(items)[1], list(keys), list(values), list(items)


def at_their_end(t):
    items = [t]
    first, second = iter(items), iter((t,))
    list(first), list(second)
    armature.graph_break()
    items.append(t * 2)
    return t * 2, list(first), next(second, None), items


def in_a_dict(t):
    held = {"it": iter([t, t * 2, t * 3])}
    a = next(held["it"])
    armature.graph_break()
    return a + next(held["it"]), held


def grows_afterwards(t):
    items = [t, t * 2]
    it = iter(items)
    a = next(it)
    armature.graph_break()
    b = next(it)
    items.append(t * 3)
    return a + b, it, items


PROGRAMS = [
    over_a_tuple, over_a_list, over_a_list_of_the_program, over_a_range, numbered, zipped, numbered_pairs, backwards,
    mapped, filtered, of_a_dict, of_an_ordered_dict, at_their_end, in_a_dict, grows_afterwards,
]  # fmt: skip


def drained(program: Callable[..., Any]) -> Callable[..., Any]:
    """The program, and a function that calls it and takes what its iterators have left."""

    def call(t):
        return [list(part) if hasattr(part, "__next__") else part for part in program(t) if not isinstance(part, dict)]

    return call


@pytest.mark.parametrize("program", PROGRAMS)
def test_one_break(program: Callable[..., Any]) -> None:
    found = resumes(drained(program), one)
    assert found.breaks == ["explicit-break"]
    assert not found.eager


def changed_before(t):
    items = [t, t * 2, t * 3]
    it = iter(items)
    a = next(it)
    armature.graph_break()
    items.append(t * 4)
    b = next(it)
    del items[1:]
    return a + b, list(it), next(it, None)


def two_share_one(t):
    it = iter([t, t * 2, t * 3, t * 4])
    pairs = zip(it, it)
    a, b = next(pairs)
    armature.graph_break()
    c, d = next(pairs)
    return a + b * 2 + c * 3 + d * 4, list(it)


def until(t):
    calls = [0]

    def count():
        calls[0] += 1
        return calls[0]

    it, over = iter(count, 4), iter(lambda: 0, 0)
    a = t * next(it)
    next(over, None)
    armature.graph_break()
    return a * next(it), list(it), list(over), calls


def grows_while_it_is_iterated_over(t):
    items = [1.0, 2.0, 3.0]
    for x in items:
        t = t * x
        armature.graph_break()
        if len(items) < 6:
            items.append(x + 3.0)
    return t, items


def one_list_of_two_names(t):
    for items, found in (([1.0, 2.0], []), ([3.0, 4.0], [5.0]), (both := [6.0, 7.0, 8.0], both)):
        for x in items:
            t = t * x
            armature.graph_break()
            found.append(x)
            if len(found) > 4:
                break
    return t, both


def pairs_of_one_iterator(t):
    it = iter(range(12))
    for a, b in zip(it, it):
        t = t * (a + 1)
        armature.graph_break()
        t = t + b
    return t


def takes_what_its_loop_would(t):
    it = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    for x in it:
        t = t * x
        armature.graph_break()
        if x < 5.0:
            t = t + next(it)
    return t


def of_a_generator_and_a_map(t):
    for a, b in zip((x * 2 for x in range(5)), map(float, range(5))):
        t = t * (a + 1)
        armature.graph_break()
        t = t + b
    return t


def of_a_set(t):
    for x in {1, 2, 3, 4}:
        t = t * x
        armature.graph_break()
    return t


def changes_its_dict(t):
    table = {"a": 1.0, "b": 2.0, "c": 3.0}
    try:
        for key, x in table.items():
            t = t * x
            armature.graph_break()
            if key == "b":
                table["d"] = 4.0
            else:
                table[key] = x + 1
    except RuntimeError as error:
        return t, str(error), table
    return t, table


def changes_its_ordered_dict(t):
    table, found = OrderedDict(a=1.0, b=2.0, c=3.0), []
    for change in (lambda: table.update(b=5.0), lambda: table.move_to_end("a"), lambda: table.update(d=4.0)):
        try:
            for key, x in table.items():
                t = t * x
                armature.graph_break()
                found.append(key)
                change()
        except RuntimeError as error:
            found.append(str(error))
    return t, table, found


def of_unequal_lengths(t):
    try:
        for a, b in zip([1.0, 2.0, 3.0], [4.0, 5.0], strict=True):
            t = t * a
            armature.graph_break()
            t = t + b
    except ValueError as error:
        return t, str(error)
    return t


@pytest.mark.parametrize(
    "program",
    [
        changed_before, two_share_one, until, grows_while_it_is_iterated_over, one_list_of_two_names,
        pairs_of_one_iterator, takes_what_its_loop_would, of_a_generator_and_a_map, of_a_set, changes_its_dict,
        changes_its_ordered_dict,
        of_unequal_lengths,
    ],
)  # fmt: skip
def test_breaks(program: Callable[..., Any]) -> None:
    found = resumes(program, one)
    assert found.graphs
    assert not found.eager


def by_hand(t):
    it = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0])
    while (x := next(it, None)) is not None:
        t = t * x
        armature.graph_break()
    return t


def by_for(t):
    it = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0])
    for x in it:
        t = t * x
        armature.graph_break()
    return t, list(it)


def collecting(t):
    found, others = [], [t]
    for x in [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]:
        t = t * x
        armature.graph_break()
        found.append(t + 1)
        others.extend((t, t * 2))
        others += [x]
    return found, others


def of_a_loop_in_a_loop(t):
    found = []
    for row in (t, t * 2, t * 3, t * 4):
        mine = []
        for x, (place, _) in zip([row, t, row + t, t + 1, row + 2], enumerate("abcde")):
            t = t * x
            armature.graph_break()
            mine.append((t, place, x))
        found.append((mine, row))
    return found


def of_large_tables(t):
    for x in {f"k{k}": float(k) for k in range(70)}.values():
        t = t + x
        armature.graph_break()
    return t


@pytest.mark.parametrize(
    ("program", "most"), [(by_hand, 6), (by_for, 5), (collecting, 5), (of_a_loop_in_a_loop, 9), (of_large_tables, 9)]
)
def test_a_loop_that_breaks_compiles_no_code_per_round(program: Callable[..., Any], most: int) -> None:
    found = resumes(program, one)
    assert not found.eager
    assert found.compilations <= most
    assert set(found.breaks) <= {"explicit-break", "next-of-iterator"}


def three_rounds(t):
    for k in range(3):
        t = t * (k + 2)
        armature.graph_break()
    return t + 1


def last_rounds_of_pairs(t):
    for k, (a, b) in enumerate(zip([1.0, 2.0], (3.0, 4.0, 5.0), strict=False)):
        t = t * a + b * k
        armature.graph_break()
    return t + 1


def last_rounds_of_a_dict(t):
    held = {"a": 1.0, "b": 2.0}
    for k, x in held.items():
        t = t * x + len(k)
        armature.graph_break()
    return t + 1


def break_before_the_last_rounds(t):
    for k in range(4):
        if k == 1:
            armature.graph_break()
        t = t * (k + 2)
    return t + 1


@pytest.mark.parametrize(
    ("program", "breaks"),
    [(three_rounds, 2), (last_rounds_of_pairs, 2), (last_rounds_of_a_dict, 2), (break_before_the_last_rounds, 1)],
)
def test_the_last_rounds_of_a_loop_break_only_where_the_program_does(program: Callable[..., Any], breaks: int) -> None:
    found = resumes(program, one)
    assert found.breaks == ["explicit-break"] * breaks
    assert not found.eager


def values_of_two_dicts(t):
    first, second, kept = {"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 4.0, "b": 5.0, "c": 6.0}, []
    keep = kept.append
    for x, y in zip(first.values(), second.values()):
        armature.graph_break()
        keep(t * x + y)
    return kept


def test_lists_that_a_guard_makes_are_no_other_objects() -> None:
    """What is left of each dict is a list that reading makes, at the address of the one before; none is `kept`."""
    assert set(resumes(values_of_two_dicts, one).breaks) == {"explicit-break"}
