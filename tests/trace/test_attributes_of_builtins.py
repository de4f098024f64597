"""Objects of classes written in C say what they have and what they have not, as in eager mode."""

from __future__ import annotations

import collections
import enum
import itertools
import operator
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import armature
from armature import config

X = torch.ones(2)
NAMES = (
    "__class__", "__dict__", "__doc__", "__eq__", "__hash__", "__len__", "__module__", "__name__", "append",
    "default_factory", "mro", "nothing", "start",
)  # fmt: skip
GIVEN = ([], {}, (1,), range(3), slice(1, 2), {1}, torch.Size([1]), 3, "a", None, collections.deque())
MADE: tuple[Callable[[], Any], ...] = (
    list, dict, set, frozenset, tuple, bytes, float, str, collections.deque, collections.OrderedDict,
    collections.defaultdict, lambda: collections.defaultdict(list), torch.Size, lambda: {}.items(),
)  # fmt: skip


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    armature.reset()
    with config.patch(strict=True):
        yield


def described(obj: Any, name: str) -> str:
    """What the attribute is, or the text of its error. A dict of attributes breaks the graph."""
    try:
        found = getattr(obj, name)
    except AttributeError as error:
        return str(error)
    return "called" if callable(found) and name != "__class__" else str(found)


def like_eager(fn: Callable[[Tensor], Any], fullgraph: bool) -> None:
    assert str(armature.compile(fn, backend="eager", fullgraph=fullgraph)(X)) == str(fn(X))


class Unit:
    scale = 3

    def method(self, by: int = 1) -> int:
        return self.scale * by

    def __repr__(self) -> str:
        return "a unit"


class Color(enum.Enum):
    RED = 1


class Shade(enum.Flag):
    LIGHT = 1
    DARK = 2


class Listed(list[int]):
    pass


Pair = collections.namedtuple("Pair", "a b")
OTHERS: tuple[Callable[[], Any], ...] = (
    Unit, lambda: Unit().method, lambda: partial(len, ()), lambda: types.SimpleNamespace(a=1), lambda: Color,
    lambda: Pair(1, 2), lambda: super(Listed, Listed((1,))), lambda: torch.ones(2), lambda: nn.Parameter(torch.ones(2)),
    lambda: nn.Linear(2, 2), lambda: dict.get, lambda: len, lambda: int, lambda: ValueError("a"),
)  # fmt: skip
OTHER_NAMES = (
    "__annotations__", "__call__", "__class__", "__iter__", "__len__", "__module__", "__name__", "__objclass__",
    "__qualname__", "__self__", "__self_class__", "__slots__", "__text_signature__", "__thisclass__", "mro", "name",
    "nothing", "shape", "value",
)  # fmt: skip


@pytest.mark.parametrize("name", OTHER_NAMES)
@pytest.mark.parametrize("make", OTHERS)
def test_of_other_objects(make: Callable[[], Any], name: str) -> None:
    given = make()
    like_eager(lambda x: (x + 1, hasattr(given, name), described(given, name)), fullgraph=False)
    like_eager(lambda x: (x + 1, hasattr(make(), name), described(make(), name)), fullgraph=False)


def test_a_method_is_called_by_its_call() -> None:
    unit = Unit()
    like_eager(lambda x: (x + 1, unit.method.__call__(2), unit.method.__call__.__call__(by=3)), fullgraph=True)


def test_what_can_be_called() -> None:
    made = (len, int, Unit, Unit().method, partial(len), lambda: 1, int.real, [].append, "".join, 3, Unit(), Color.RED)
    like_eager(lambda x: (x + 1, [callable(one) for one in made]), fullgraph=True)


@pytest.mark.parametrize("given", [(2, "no"), (17, "there"), (99999, "odd"), ("just",), ([], "b"), (2, "no", "file")])
def test_the_number_of_an_error_says_its_class(given: tuple[Any, ...]) -> None:
    def fn(x: Tensor) -> Any:
        try:
            raise OSError(*given)
        except FileNotFoundError as error:
            return x + 1, "not found", error.args
        except OSError as error:
            return x + 1, type(error), error.args

    like_eager(fn, fullgraph=len(given) < 3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", GIVEN, ids=lambda given: type(given).__name__)
def test_of_an_object_of_the_program(given: Any, name: str) -> None:
    like_eager(lambda x: (x + 1, hasattr(given, name), described(given, name)), fullgraph=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", MADE)
def test_of_one_made_in_the_frame(make: Callable[[], Any], name: str) -> None:
    has_dict = make is collections.OrderedDict and name == "__dict__"
    like_eager(lambda x: (x + 1, hasattr(make(), name), described(make(), name)), fullgraph=not has_dict)


def test_what_is_hashable() -> None:
    like_eager(lambda x: (x + 1, [o.__hash__ is None for o in ([], {}, set(), (), "", 1, slice(1))]), fullgraph=True)


def test_objects_with_attributes_are_told_apart() -> None:
    def flat(obj: Any) -> list[Any]:
        if hasattr(obj, "__dict__"):
            return [flat(value) for value in vars(obj).values()]
        return [flat(value) for value in obj] if hasattr(obj, "append") else [obj]

    class Node:
        def __init__(self, *parts: Any) -> None:
            self.first, self.rest = parts[0], list(parts[1:])

    tree = Node(1, Node(2, 3), [4, "five"])
    like_eager(lambda x: (x + 1, flat(tree)), fullgraph=True)


def test_an_iterator_of_a_constant_is_new_in_each_call() -> None:
    code = described.__code__

    def fn(x: Tensor, skipped: int) -> tuple[Tensor, Any, Any, str]:
        first = next(itertools.islice(code.co_positions(), skipped, None))
        return x + 1, first, list(code.co_lines())[skipped], next("abc".__iter__())

    compiled = armature.compile(fn, backend="eager")
    for skipped in (0, 1, 1, 3, 0):
        assert str(compiled(X, skipped)) == str(fn(X, skipped))


class Refuses:
    __iter__ = None
    __reversed__ = None

    def __getitem__(self, index: int) -> int:
        return index


class Legacy:
    def __getitem__(self, index: int) -> int:
        return [1, 2][index]


def outcome(fn: Callable[[], Any]) -> Any:
    try:
        return fn()
    except (TypeError, IndexError) as error:
        return type(error), str(error)


ITERABLES: tuple[Callable[[], Any], ...] = (
    Unit, Refuses, Legacy, lambda: types.SimpleNamespace(a=1), lambda: nn.Linear(2, 2), lambda: 3, list, lambda: Color,
    lambda: Color.RED, lambda: Shade.DARK, lambda: {}.items(), lambda: len, lambda: torch.ones(2), lambda: None,
)  # fmt: skip


@pytest.mark.parametrize("make", ITERABLES)
def test_what_is_no_iterable_says_so_at_once(make: Callable[[], Any]) -> None:
    def fn(x: Tensor, given: Any) -> Any:
        asked = [outcome(lambda: isinstance(iter(one), object)) for one in (given, make())]  # noqa: B023
        return x + 1, asked, outcome(lambda: isinstance(reversed(given), object))

    given = make()
    assert str(armature.compile(fn, backend="eager")(X, given)) == str(fn(X, given))


def test_formats() -> None:
    objects = (Unit(), Unit, ValueError("a"), [1], (1,), {1: 2}, None, 3, "a", types.SimpleNamespace(a=1))
    like_eager(lambda x: (x + 1, [outcome(lambda: f"{one:>4}") for one in objects]), fullgraph=False)  # noqa: B023


def test_what_an_index_of_a_deque_is() -> None:
    many = collections.deque([1, 2])
    like_eager(lambda x: (x + 1, [outcome(lambda: many[k]) for k in (0, -1, 2, "a", None, 1.0)]), fullgraph=True)  # noqa: B023


def test_namespaces_equal_nothing_else() -> None:
    one, two = types.SimpleNamespace(a=1), types.SimpleNamespace(a=1)

    def fn(x: Tensor) -> Any:
        asked = one == 1, one != 1, one == 1, one == two, one is two, one in [1, two], one == None  # noqa: E711
        return x + 1, asked, 2 if one == "a" else 3

    like_eager(fn, fullgraph=True)


class Grows(list[int]):
    def __iadd__(self, other: Any) -> Any:
        return super().__iadd__(other)


class Merges(dict[str, int]):
    def __ior__(self, other: Any) -> Any:
        return super().__ior__(other)


def test_what_changes_in_place_gives_the_object_itself() -> None:
    def fn(x: Tensor) -> Any:
        grown, merged = Grows([1]), Merges(a=1)
        first, second = grown, merged
        grown += [2]
        merged |= {"b": 2}
        return x + 1, grown is first, grown, type(grown), merged is second, merged, type(merged)

    like_eager(fn, fullgraph=True)


class Number(int):
    pass


def test_class_methods_in_c_of_objects() -> None:
    made = (lambda: Merges().fromkeys("ab", 1), lambda: {}.fromkeys("c"), lambda: Number(3).from_bytes(b"a", "big"),
            lambda: (5).from_bytes(b"ab", "little"), lambda: collections.OrderedDict().fromkeys("ab"))  # fmt: skip
    like_eager(lambda x: (x + 1, [(type(one()), one()) for one in made]), fullgraph=False)


def test_errors_of_methods() -> None:
    calls = (
        lambda: range(3).index(9), lambda: range(3).index(1), lambda: range(3).index(), lambda: range(3).__len__(1),
        lambda: slice(1, 2).indices(-1), lambda: slice(1, 2).indices(), lambda: slice(0, 3).indices("a"),
        lambda: collections.deque([1]).index(4), lambda: collections.deque([1]).remove("a"), lambda: [1].index("a"),
        lambda: [1].remove(3), lambda: (1,).index(5), lambda: dict([5]), lambda: dict([(1, 2, 3)]),
        lambda: next(5), lambda: next([]), lambda: [1, 2].index(2, 2), lambda: [1, 2, 1].index(1, -2), lambda: (1, 2).index(1, 1),
        lambda: [1, 2, 1].index(1, 1, 2), lambda: list(enumerate("ab", 2.0)), lambda: list(map(len)), lambda: divmod("a", 1),
        lambda: divmod(7, -2), lambda: getattr(1, 3), lambda: hasattr(1, 3), lambda: vars(1), lambda: operator.getitem((1, 2), "a"),
        lambda: operator.getitem([1], "a"), lambda: operator.getitem(range(3), "a"), lambda: len(range(10**20)), lambda: list(itertools.islice([1], -1)),
    )  # fmt: skip

    def tried(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (TypeError, ValueError, OverflowError) as error:
            return type(error), str(error)

    like_eager(lambda x: (x + 1, [tried(call) for call in calls]), fullgraph=False)


ITERATED: tuple[Any, ...] = (
    [1], (1,), {1: 2}, {1}, frozenset(), "a", b"a", range(3), collections.OrderedDict(a=1), collections.deque([1]),
    collections.Counter("a"), torch.Size([1]), Grows([1]),
)  # fmt: skip


@pytest.mark.parametrize("given", ITERATED, ids=lambda given: type(given).__name__)
def test_classes_of_iterators(given: Any) -> None:
    def backwards(one: Any) -> Any:
        try:
            return type(reversed(one))
        except TypeError as error:
            return str(error)

    like_eager(lambda x: (x + 1, type(iter(given)), backwards(given)), fullgraph=True)


def test_classes_of_iterators_over_views() -> None:
    like_eager(lambda x: (x + 1, [(type(iter(v)), type(reversed(v))) for v in ({}.keys(), {}.items())]), fullgraph=True)


def test_what_super_is_not() -> None:
    class Last(Grows):
        def first(self) -> Any:
            return super()[0]  # type: ignore[index]

    def fn(x: Tensor) -> Any:
        try:
            return x, Last([1]).first()
        except TypeError as error:
            return x + 1, str(error)

    like_eager(fn, fullgraph=True)


class Always(list[int]):
    def __eq__(self, other: Any) -> Any:
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("name", ["__eq__", "__ne__", "__lt__", "__ge__"])
def test_methods_of_comparison_say_what_they_do_not_compare(name: str) -> None:
    objects = ([1], (1,), {1: 2}, collections.deque([1]), Always([1]), collections.OrderedDict(a=1), torch.Size([1]))
    others = (1, None, [1], (1,), {1: 2}, collections.deque([1]), Always([1]), "a")

    def fn(x: Tensor) -> Any:
        return x + 1, [getattr(one, name)(other) for one in objects if hasattr(one, name) for other in others]

    like_eager(fn, fullgraph=False)
    like_eager(lambda x: (x + 1, [Always([1]) == other for other in others]), fullgraph=False)
