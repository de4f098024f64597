"""The stand-ins in plain Python: same items, same results, same exceptions as what they stand for."""

from __future__ import annotations

import inspect
import itertools as it
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from armature_builtin_rules import getters
from armature_builtin_rules.polyfills import functools, itertools
from armature_builtin_rules.polyfills import operator as operators

PAIRS = {id(original): stand_in for original, stand_in in (*functools.STAND_INS, *itertools.STAND_INS)}
CHAIN = it.chain.from_iterable


def outcome(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return list(it.islice(fn(*args, **kwargs), 20))
    except Exception as error:
        return type(error)


ITERATORS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (it.accumulate, ([1, 2, 3],), {}),
    (it.accumulate, ([],), {}),
    (it.accumulate, ([1, 2, 3], operator.mul), {"initial": 5}),
    (it.accumulate, ([], None), {"initial": 5}),
    (it.chain, ("ab", [1], ()), {}),
    (it.chain, (), {}),
    (it.combinations, ("abcd", 2), {}),
    (it.combinations, ("abcd", 0), {}),
    (it.combinations, ("ab", 3), {}),
    (it.combinations, ("ab", -1), {}),
    (it.compress, ("abcd", [1, 0, 1]), {}),
    (it.count, (), {}),
    (it.count, (5, -2), {}),
    (it.cycle, ("abc",), {}),
    (it.cycle, ("",), {}),
    (it.dropwhile, (lambda x: x < 3, [1, 2, 3, 1]), {}),
    (it.filterfalse, (None, [0, 1, ""]), {}),
    (it.filterfalse, (lambda x: x > 1, [0, 1, 2]), {}),
    (it.islice, ("abcdef", 3), {}),
    (it.islice, ("abcdef", 1, None), {}),
    (it.islice, ("abcdef", 1, 5, 2), {}),
    (it.islice, ("abcdef", None, 5, None), {}),
    (it.islice, ("abcdef", 4, 2), {}),
    (it.islice, ("abcdef", -1), {}),
    (it.islice, ("abcdef", 0, 3, 0), {}),
    (it.pairwise, ("abcd",), {}),
    (it.pairwise, ("",), {}),
    (it.permutations, ("abc",), {}),
    (it.permutations, ("abc", 2), {}),
    (it.permutations, ("ab", 3), {}),
    (it.product, ("ab", [1, 2]), {}),
    (it.product, ("ab",), {"repeat": 2}),
    (it.product, (), {}),
    (it.product, ("ab", ""), {}),
    (it.repeat, (7, 3), {}),
    (it.repeat, (7,), {}),
    (it.repeat, (7,), {"times": 0}),
    (it.starmap, (pow, [(2, 3), (3, 2)]), {}),
    (it.takewhile, (lambda x: x < 3, [1, 2, 3, 1]), {}),
    (it.zip_longest, ("ab", [1, 2, 3]), {"fillvalue": 0}),
    (it.zip_longest, (), {}),
]


@pytest.mark.parametrize(("original", "args", "kwargs"), ITERATORS, ids=lambda x: getattr(x, "__name__", ""))
def test_iterators(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert outcome(PAIRS[id(original)], args, kwargs) == outcome(original, args, kwargs)


def test_chain_from_iterable() -> None:
    assert list(itertools.from_iterable(["ab", "c"])) == list(CHAIN(["ab", "c"]))


def test_slices_leave_the_rest_in_the_iterator() -> None:
    for slice_ in (it.islice, itertools.islice):
        items = iter("abcdef")
        assert list(slice_(items, 1, 3)) == ["b", "c"]
        assert list(items) == ["d", "e", "f"]
        empty = iter("abc")
        assert list(slice_(empty, 0)) == []
        assert list(empty) == ["a", "b", "c"]


def test_reduce() -> None:
    assert functools.reduce(operator.sub, [10, 1, 2]) == 7
    assert functools.reduce(operator.sub, [], 3) == 3
    with pytest.raises(TypeError, match="empty iterable"):
        functools.reduce(operator.sub, [])


# What makes a callable gives a new function at each call, which is compared by what it gives, in a test of its own.
MAKERS = {id(original): stand_in for original, stand_in in getters.STAND_INS.items()}


@pytest.mark.parametrize(("original", "stand_in"), operators.STAND_INS, ids=lambda f: f.__name__)
def test_operators(original: Any, stand_in: Any) -> None:
    count = len(inspect.signature(stand_in).parameters)
    samples: list[tuple[Any, ...]] = [(7, 2, 3), ([1, 2, 2], 2, 5), ([1], [2], 5), ({1: 2}, 1, 4)]
    for args in (sample[:count] for sample in samples):
        results = []
        for fn in (original, stand_in):
            own = [list(a) if isinstance(a, list) else dict(a) if isinstance(a, dict) else a for a in args]
            try:
                results.append((fn(*own), own))
            except Exception as error:
                results.append((type(error), own))
        assert results[0] == results[1]


POINT = SimpleNamespace(x=1, inner=SimpleNamespace(y=2))
MADE: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = [
    (operator.itemgetter, (1,), {}, [5, 6, 7]),
    (operator.itemgetter, (0, 2), {}, [5, 6, 7]),
    (operator.itemgetter, (slice(1, 3),), {}, "abcd"),
    (operator.itemgetter, ("a", "b"), {}, {"a": 1, "b": 2}),
    (operator.itemgetter, ("a", "c"), {}, {"a": 1, "b": 2}),
    (operator.itemgetter, (3,), {}, [5, 6, 7]),
    (operator.itemgetter, (), {}, [5, 6, 7]),
    (operator.attrgetter, ("x",), {}, POINT),
    (operator.attrgetter, ("inner.y",), {}, POINT),
    (operator.attrgetter, ("x", "inner.y"), {}, POINT),
    (operator.attrgetter, ("inner.z",), {}, POINT),
    (operator.attrgetter, (7,), {}, POINT),
    (operator.attrgetter, ("x", 7), {}, POINT),
    (operator.attrgetter, (), {}, POINT),
    (operator.methodcaller, ("upper",), {}, "ab"),
    (operator.methodcaller, ("split", ","), {"maxsplit": 1}, "a,b,c"),
    (operator.methodcaller, ("split", 7), {}, "a,b,c"),
    (operator.methodcaller, ("no_such",), {}, "ab"),
    (operator.methodcaller, (7,), {}, "ab"),
    (operator.methodcaller, (), {}, "ab"),
]


@pytest.mark.parametrize(("original", "args", "kwargs", "obj"), MADE, ids=lambda x: getattr(x, "__name__", ""))
def test_makers_of_callables(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any], obj: Any) -> None:
    """Same results, and same errors at the same moment: when it is made or when it is called."""
    results = []
    for maker in (original, MAKERS[id(original)]):
        made = False
        try:
            get = maker(*args, **kwargs)
            made = True
            results.append((made, get(obj)))
        except Exception as error:
            results.append((made, type(error)))
    assert results[0] == results[1]


def test_each_maker_of_callables_is_tested() -> None:
    assert {id(original) for original, *_ in MADE} == set(MAKERS)


class Hinted:
    """Has no length, and says what it expects to give."""

    def __init__(self, hint: Any) -> None:
        self.hint = hint

    def __length_hint__(self) -> Any:
        if isinstance(self.hint, Exception):
            raise self.hint
        return self.hint


class NoLength:
    def __len__(self) -> int:
        raise TypeError("not today")


@pytest.mark.parametrize(
    "args",
    [
        ([1, 2],), ([1, 2], 7), ({1: 2},), (7,), (7, 3), (object(), 3), (iter([1, 2]), 5), (Hinted(4), 5), (Hinted(0), 5),
        (Hinted(NotImplemented), 5), (Hinted(TypeError()), 5), (Hinted(KeyError()), 5), (Hinted(-1), 5), (Hinted("a"), 5),
        (NoLength(), 5), ([1], "a"), ([1], 2.0), ([1], True), (list, 3), (Hinted, 3),
    ],
)  # fmt: skip
def test_length_hint(args: tuple[Any, ...]) -> None:
    results = []
    for fn in (operator.length_hint, operators.length_hint):
        try:
            results.append(fn(*args))
        except Exception as error:
            results.append(type(error))
    assert results[0] == results[1]


def test_each_stand_in_is_for_one_original() -> None:
    originals = [original for original, _ in (*functools.STAND_INS, *itertools.STAND_INS, *operators.STAND_INS)]
    assert len({id(o) for o in originals}) == len(originals)
