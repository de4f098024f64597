"""Iterators, generators and random generators of the caller, in one graph: afterwards they are as eager leaves them."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature.pipeline.session import Outcome, session
from armature.testing.differential import difference

T = torch.linspace(-1, 1, 4)


def squares(n: int = 3):
    for i in range(n):
        yield i * i


def tensors():
    yield T
    yield T + 1


def takes_all(t, it):
    return t * sum(it), list(it)


def takes_one(t, it):
    return t * next(it)


def breaks_off(t, it):
    for x in it:
        t = t + x
        if x >= 2:
            break
    return t


def past_the_end(t, it):
    for x in it:
        t = t + x
    return t, next(it, None), next(it, 7)


def unpacks(t, it):
    a, b, *rest = it
    return t * a + b, rest


def pairs(t, it):
    return t, [t * a + b for a, b in it]


def first_pair(t, it):
    a, b = next(it)
    return t * a - b


def raises(t, it):
    try:
        while True:
            t = t + next(it)
    except StopIteration:
        return t


NUMBERS: dict[str, Callable[[], Any]] = {
    "list": lambda: iter([1, 2, 3]), "tuple": lambda: iter((1, 2, 3)), "range": lambda: iter(range(1, 6, 2)),
    "begun": lambda: begun(), "bytes": lambda: iter(b"\1\2\3"),
    "reversed": lambda: reversed([3, 2, 1]), "tensors": lambda: iter([T, T + 1, T * 2]), "map": lambda: map(abs, [-1, 2, 3]),
    "filter": lambda: filter(None, [0, 1, 2, 3]), "map of two": lambda: map(max, [1, 5], (2, 2, 7)),
    "generator": squares, "of tensors": tensors, "expression": lambda: (x + 1 for x in [1, 2]),
    "empty": lambda: iter([]), "exhausted": lambda: exhausted(),
}  # fmt: skip
GENERATORS = ("generator", "of tensors", "expression")  # of the caller: Python asks them, with a graph break
PAIRS: dict[str, Callable[[], Any]] = {
    "zip": lambda: zip([1, 2, 3], (4, 5)), "enumerate": lambda: enumerate([5, 6], 3), "strict": lambda: zip([1], [2], strict=True),
    "unlike": lambda: zip([1, 2], [3], strict=True), "nested": lambda: zip(enumerate([1, 2]), [3, 4]),
}  # fmt: skip


def begun() -> Any:
    made = iter([9, 1, 2, 3])
    next(made)
    return made


def exhausted() -> Any:
    made = iter([1])
    next(made)
    next(made, None)
    return made


def outcome(fn: Callable[..., Any], given: Any) -> tuple[Any, ...]:
    try:
        found = fn(T, given)
    except Exception as error:
        found = repr(error)
    left = []
    for _ in range(4):
        try:
            left.append(next(given, "over"))
        except Exception as error:
            left.append(repr(error))
    return found, left


def compare(fn: Callable[..., Any], make: Callable[[], Any], one_graph: bool) -> None:
    armature.reset()
    compiled = armature.compile(fn, backend="eager", fullgraph=one_graph)
    for _ in range(2):
        assert difference(outcome(fn, make()), outcome(compiled, make())) == 0.0
    if one_graph:
        assert {record.outcome for record in session().compilations} == {Outcome.COMPILED}


@pytest.mark.parametrize("fn", [takes_all, past_the_end, raises])
@pytest.mark.parametrize("name", NUMBERS)
def test_all_of_it(fn: Callable[..., Any], name: str) -> None:
    compare(fn, NUMBERS[name], one_graph=name not in GENERATORS)


@pytest.mark.parametrize("name", [name for name in NUMBERS if name not in ("tensors", "of tensors")])
@pytest.mark.parametrize("fn", [breaks_off, takes_one, unpacks])
def test_a_part_of_it(fn: Callable[..., Any], name: str) -> None:
    raises_in_eager = name in ("empty", "exhausted")
    compare(fn, NUMBERS[name], one_graph=name not in GENERATORS and not raises_in_eager)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("fn", [pairs, first_pair])
def test_iterators_over_iterators(fn: Callable[..., Any], name: str) -> None:
    compare(fn, PAIRS[name], one_graph=name not in ("nested", "unlike"))


def test_an_iterator_and_one_that_holds_it() -> None:
    def fn(t, both):
        inner, outer = both
        return t * next(inner), next(outer)

    compiled = armature.compile(fn, backend="eager")
    results = []
    for run in (fn, compiled):
        inner = iter([1, 2, 3, 4])
        results.append((run(T, (inner, zip(inner, "abcd"))), list(inner)))
    assert difference(*results) == 0.0


def test_a_list_that_changes_under_its_iterator() -> None:
    def fn(t, items, it):
        t = t * next(it)
        items.append(5)
        return t, list(it)

    compiled = armature.compile(fn, backend="eager")
    results = []
    for run in (fn, compiled):
        items = [1, 2]
        it = iter(items)
        results.append((run(T, items, it), items, list(it)))
    assert difference(*results) == 0.0


def test_an_iterator_across_a_break() -> None:
    def fn(t, it):
        t = t * next(it)
        armature.graph_break("here")
        return t + next(it), sum(it)

    for make in (lambda: iter([1, 2, 3, 4]), lambda: zip([1]) and enumerate([1]) and map(abs, [1, 2, -3]), squares):
        compare(fn, make, one_graph=False)


def test_guards() -> None:
    fn = lambda t, it: t * sum(it)  # noqa: E731
    compiled = armature.compile(fn, backend="eager", fullgraph=True)

    def check(make: Callable[[], Any], again: bool) -> None:
        before = len(session().compilations)
        assert difference(fn(T, make()), compiled(T, make())) == 0.0
        assert (len(session().compilations) > before) == again

    check(lambda: iter([1, 2]), True)
    check(lambda: iter([1, 2]), False)
    check(lambda: iter((1, 2)), True)
    check(lambda: iter([1, 3]), True)
    check(lambda: map(abs, [-1, 2]), True)
    check(lambda: map(float, [-1, 2]), True)


# Iterators over dicts and sets.


def takes(t, a):
    first = next(a)
    for x in a:
        t = t + x
    return t * first, next(a, None)


def on_its_way(iterator):
    next(iterator)
    return iterator


@pytest.mark.parametrize(
    "make",
    [
        lambda: iter({1: 2, 3: 4, 5: 6}),
        lambda: on_its_way(iter({1: 2, 3: 4, 5: 6})),
        lambda: iter({"a": T, "b": T + 1, "c": 3}.values()),
        lambda: on_its_way(reversed({1: 2, 3: 4, 5: 6})),
        lambda: on_its_way(iter({5, 1, 9})),
        lambda: iter(OrderedDict({1: 2, 3: 4, 5: 6})),
        lambda: on_its_way(reversed(OrderedDict({1: 2, 3: 4, 5: 6}).values())),
        lambda: on_its_way(iter(OrderedDict({"a": 1, "b": 2, "c": 3}).items())),
        lambda: on_its_way(iter({"a": 1, "b": 2, "c": 3}.items())),
    ],
)
def test_iterators_over_dicts_and_sets(make: Callable[[], Any]) -> None:
    fn = takes
    if type(next(make())) is tuple:

        def fn(t, a):
            return [(key, t * value) for key, value in a], next(a, None)

    compiled = armature.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        mine, theirs = make(), make()
        assert difference((fn(T, theirs), list(theirs)), (compiled(T, mine), list(mine))) == 0.0


def changes_what_it_goes_over(t, a, held):
    t = t + next(a)
    held[7] = 8
    try:
        return t + next(a)
    except RuntimeError as error:
        return t, str(error)


def replaces(t, a, held):
    t = t + next(a)
    held[3] = 9
    return t + next(a), next(a, None)


def changes_afterwards(t, a, held):
    t = t + next(a)
    held.clear()
    return t


@pytest.mark.parametrize("fn", [changes_what_it_goes_over, replaces, changes_afterwards])
@pytest.mark.parametrize("one", [True, False])
def test_a_dict_that_changes_under_its_iterator(fn: Callable[..., Any], one: bool) -> None:
    def outcome(run: Callable[..., Any]) -> object:
        held = {1: 2, 3: 4}
        over = iter(held.values()) if one else iter({1: 2, 3: 4}.values())
        found = run(T, over, held)
        try:
            return found, held, list(over)
        except RuntimeError as error:
            return found, held, str(error)

    compiled = armature.compile(fn, backend="eager")
    for _ in range(2):
        assert difference(outcome(fn), outcome(compiled)) == 0.0
    over = {1: 2, 3: 4}
    mine, theirs = iter(over), iter(over)
    over[5] = 6
    for run, iterator in ((fn, theirs), (compiled, mine)):
        with pytest.raises(RuntimeError, match="changed size"):
            run(T, iterator, {})


# Random numbers.


def draws(t, r):
    return t * r.random(), r.randint(1, 9), r.uniform(0, 2), r.gauss(0, 1), r.choice([3, 4, 5]), r.sample(range(9), 3)


def shuffles(t, r):
    order = [t, t + 1, t + 2]
    r.shuffle(order)
    return order, r.choices("abc", k=2), r.choice(order), r.getrandbits(5), r.randrange(10)


def seeded(t, r):
    own = random.Random(3)
    r.seed(5)
    return t * own.random(), own.random(), r.random(), own


def mistakes(t, r):
    try:
        return r.randint(3, 1)
    except ValueError as error:
        return t, str(error)


@pytest.mark.parametrize("fn", [draws, shuffles, seeded, mistakes])
def test_random_objects(fn: Callable[..., Any]) -> None:
    compiled = armature.compile(fn, backend="eager", fullgraph=True)
    mine, theirs = random.Random(1), random.Random(1)
    for _ in range(3):
        found, expected = list(compiled(T, mine)), list(fn(T, theirs))
        objects = [item.getstate() if isinstance(item, random.Random) else item for item in found]
        assert difference([i.getstate() if isinstance(i, random.Random) else i for i in expected], objects) == 0.0
        assert mine.getstate() == theirs.getstate()


def module_functions(t):
    random.seed(7)
    items = [1, 2, 3]
    random.shuffle(items)
    return t * random.random(), items, random.randint(0, 9), random.choice(items)


def unseeded(t):
    return t * random.random()


def bytes_that_change(t):
    held = bytearray(b"abc")
    held[0] = 7
    held.append(9)
    view = memoryview(held)
    return t * held[0], len(held), bytes(view[1:]), sum(view)


@pytest.mark.parametrize("fn", [module_functions, unseeded, bytes_that_change])
def test_what_runs_eagerly(fn: Callable[..., Any]) -> None:
    compiled = armature.compile(fn, backend="eager")
    results = []
    for run in (fn, compiled):
        random.seed(1)
        results.append(([run(T) for _ in range(3)], random.getstate()))
    assert difference(*results) == 0.0


@pytest.mark.parametrize("kind", [bytearray, memoryview, bytes])
def test_bytes_of_the_caller(kind: Any) -> None:
    def fn(t, held):
        if isinstance(held, bytearray):
            held[0] = 3
        return t * held[1] + len(held), sum(held)

    compiled = armature.compile(fn, backend="eager")
    for content in (b"abc", b"xyzw"):
        mine, theirs = kind(bytearray(content)), kind(bytearray(content))
        assert difference(fn(T, theirs), compiled(T, mine)) == 0.0
        assert bytes(mine) == bytes(theirs)
