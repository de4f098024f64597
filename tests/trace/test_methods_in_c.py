"""Functions and methods written in C: what they refuse, in CPython's words, and objects that they make."""

from __future__ import annotations

import collections
import copy
import enum
import functools
import itertools
import operator
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature.pipeline.session import Outcome, session


class Listed(list[Any]):
    pass


class Kept(set[Any]):
    pass


class Frozen(frozenset[Any]):
    pass


class Text(str):
    pass


class Table(dict[Any, Any]):
    pass


class Ordered(collections.OrderedDict[Any, Any]):
    pass


class Filled(collections.defaultdict[Any, Any]):
    pass


class Complex(complex):
    pass


class Counted(dict[Any, Any]):
    def __len__(self) -> int:
        return 9

    def get(self, key: Any, default: Any = None) -> Any:
        return "got"


class Reflected:
    def __radd__(self, other: Any) -> str:
        return "radd"

    def __rmul__(self, other: Any) -> str:
        return "rmul"

    def __index__(self) -> int:
        return 2


class Uniting(dict[Any, Any]):
    def __or__(self, other: Any) -> Any:
        united = super().__or__(other)
        return "not known" if united is NotImplemented else united

    def __ror__(self, other: Any) -> str:
        return "ror"


class Pair(collections.namedtuple("Pair", "a b")):
    pass


class Color(enum.Enum):
    RED = 1


class Bits(enum.Flag):
    ONE = 1


class Number(enum.IntEnum):
    TWO = 2


def plain() -> None:
    pass


def numbers() -> Any:
    yield 1


def outcome(run: Callable[[torch.Tensor], Any]) -> Any:
    """The result, as text without addresses being new, or the error."""
    try:
        return repr(run(torch.ones(2)))
    except Exception as error:
        return type(error), str(error)


def like_eager(fn: Callable[[], Any]) -> Any:
    """Compare a call inside of a program that computes something, and gives what is raised. Its result in eager."""

    def program(x: torch.Tensor) -> Any:
        y = x + 1
        try:
            return y, fn()
        except Exception as error:
            return y, type(error), str(error)

    armature.reset()
    expected = outcome(program)
    assert outcome(armature.compile(program, backend="eager")) == expected
    assert Outcome.FALLBACK not in {record.outcome for record in session().compilations}
    return expected


REFUSED: dict[str, Callable[[], Any]] = {
    "append": lambda: Listed([1]).append(),  # type: ignore[call-arg]
    "items": lambda: Table(a=1).items(1),  # type: ignore[call-arg]
    "keywords": lambda: Table(a=1).__getitem__(key=1),  # type: ignore[call-arg]
    "of object": lambda: None.__sizeof__(1),  # type: ignore[call-arg]
    "of int": lambda: True.conjugate(1),  # type: ignore[call-arg]
    "format": lambda: Listed([1]).__format__(),  # type: ignore[call-arg]
    "close": lambda: numbers().close(2.5),
    "iter": lambda: torch.ones(2).__iter__(1),  # type: ignore[call-arg]
    "count": lambda: itertools.count().__iter__(1),  # type: ignore[call-arg]
    "update": lambda: collections.OrderedDict(a=1).update("X", None),  # type: ignore[arg-type]
    "operator": lambda: operator.add(1),  # type: ignore[call-arg]
    "one of operator": lambda: operator.neg(1, 2),  # type: ignore[call-arg]
    "cycle": lambda: itertools.cycle([1], [2]),  # type: ignore[call-arg]
    "islice": lambda: itertools.islice([1]),  # type: ignore[call-overload]
    "derived dict": lambda: Table([1], (1, 2)),  # type: ignore[call-arg]
    "derived list": lambda: Listed(None, {}, 3),  # type: ignore[call-arg]
    "derived set": lambda: Kept(range(3), 3),  # type: ignore[call-arg]
    "error's text": lambda: ValueError("q").__str__(1),  # type: ignore[call-arg]
    "traceback": lambda: ValueError("q").with_traceback(),  # type: ignore[call-arg]
    "set": lambda: Frozen().symmetric_difference(),  # type: ignore[call-arg]
    "name": lambda: Pair(1, 2).__setattr__(range(2), 3),  # type: ignore[arg-type]
    "lookup": lambda: Pair(1, 2).__getattribute__({}),  # type: ignore[arg-type]
    "other object": lambda: type.__init__(abs, (1, 2)),  # type: ignore[misc, arg-type]
    "no object": lambda: tuple.__getattribute__(None, "a"),  # type: ignore[arg-type]
    "proxy": lambda: types.MappingProxyType({"a": 1}).__ior__(None),  # type: ignore[attr-defined]
    "enum": lambda: Color(),  # type: ignore[call-arg]
    "enum by keyword": lambda: Color(wrong=1),  # type: ignore[call-arg]
    "flag": lambda: Bits([3], 1),  # type: ignore[arg-type]
    "rotate": lambda: collections.deque([1, 2]).rotate(slice(2)),  # type: ignore[arg-type]
    "made of another": lambda: tuple.__new__(dict),  # type: ignore[type-var]
    "added": lambda: [1].__add__(Reflected()),  # type: ignore[call-overload]
    "times a text": lambda: [1].__mul__("a"),  # type: ignore[arg-type]
    "size": lambda: torch.Size(["a"]),  # type: ignore[list-item]
    "sentinel": lambda: iter(1, 2),  # type: ignore[call-overload]
    "percent": lambda: operator.mod("abc", collections.deque([1])),
    "limit": lambda: collections.deque([1], "a"),  # type: ignore[arg-type]
    "negative limit": lambda: collections.deque([1], -1),
    "note": lambda: ValueError(1).add_note(2),  # type: ignore[arg-type]
    "hash": lambda: {1: 2}.pop([1]),  # type: ignore[call-overload]
    "insert": lambda: collections.deque([1, 2]).insert("a", 2),  # type: ignore[arg-type]
    "insert into a full one": lambda: collections.deque([1, 2], 2).insert("a", 2),  # type: ignore[arg-type]
    "no digits": lambda: bytearray(b"ab").fromhex("abc"),
    "no factory": lambda: Filled(b""),
    "no factory later": lambda: collections.defaultdict(list).__init__({"a"}),  # type: ignore[misc]
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused_in_the_words_of_python(name: str) -> None:
    assert "Error" in like_eager(REFUSED[name])


MADE: dict[str, Callable[[], Any]] = {
    "frozen set": lambda: (Frozen([1, 7]), type(Frozen([1])), len(Frozen("ab"))),
    "empty frozen set": lambda: Frozen(),
    "text of an object": lambda: (Text(plain), type(Text(plain))),
    "set in a set": lambda: ({1, 2} in {3, 1}, Kept([1]) in {frozenset([1])}, {frozenset([1])} - {frozenset([2])}),
    "set begun anew": lambda: [made := Kept([1]), made.__init__([2]), made],  # type: ignore[misc, func-returns-value]
    "proxy begun anew": lambda: types.MappingProxyType({"a": 1}).__init__(1, b=2),  # type: ignore[misc]
    "enum's text": lambda: (Number.TWO.__str__(), int.__repr__(Number.TWO), Number.TWO.__repr__()),
    "ordered dict": lambda: (Ordered(z=1).copy(), Ordered(z=1) | {"a": 1}, {"a": 1} | Ordered(z=1)),
    "default dict": lambda: (Filled(list, a=1).copy(), Filled(list) | {"a": 1}, copy.copy(Filled(list))),
    "ordered dict in place": lambda: operator.ior(Ordered(z=1), {"a": 1}),
    "nothing to look through": lambda: {}.pop([1], 2),  # type: ignore[call-overload]
    "frozen begun anew": lambda: frozenset([1]).__init__(True),  # type: ignore[misc, call-arg]
    "copied": lambda: (
        Frozen([1]).copy(),
        Kept([1]).copy(),
        frozenset([1]).copy(),
        Listed([1]).copy(),
        Table(a=1).copy(),
    ),
    "united": lambda: (Uniting(a=1) | 2, {}.__or__(Uniting(a=1)), {}.__or__(1)),  # type: ignore[operator]
    "times": lambda: ([1].__mul__(Reflected()), (1,).__rmul__(Reflected())),
    "closed": lambda: numbers().close(),
    "digits": lambda: (bytearray(b"ab").fromhex("abcd"), bytearray(b"ab").maketrans(b"a", b"b")[97]),
    "tuple of a size": lambda: (
        (1, 2).__add__(torch.Size([3])),
        tuple.__add__((1,), torch.Size([3])),
        tuple.__getitem__(torch.Size([3, 4]), slice(1)),
        tuple.__mul__(torch.Size([3]), 2),
        (1,) + torch.Size([3]),
    ),
    "factory": lambda: (Filled(list).default_factory, Filled(), Filled(int, {1: 2})[3], Filled(list, a=1)["b"]),
    "factory begun anew": lambda: [made := Filled(list), made.__init__(int, a=1), made["b"]],  # type: ignore[misc]
    "imaginary": lambda: (Complex(1, 2).imag, Complex(1, 2).real),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_is_what_python_makes(name: str) -> None:
    assert "Error" not in like_eager(MADE[name])


@pytest.mark.filterwarnings("ignore:in 3.12 __contains__:DeprecationWarning")
@pytest.mark.parametrize("what", [[], {}, Kept([1]), Color.RED, 1, torch.Size([])])
def test_what_is_looked_for_in_an_enum(what: Any) -> None:
    assert like_eager(lambda: what in Color)


def test_a_set_is_taken_out_of_a_set_by_its_members() -> None:
    def taken() -> Any:
        held = {frozenset([1]), frozenset([2])}
        held.discard({1})  # type: ignore[arg-type]
        held.remove(Kept([2]))  # type: ignore[arg-type]
        return held

    assert "set()" in like_eager(taken)


def test_which_of_equal_members_an_intersection_keeps() -> None:
    def kept() -> Any:
        held = {1, 3}
        held.add(2.0)  # type: ignore[arg-type]
        held &= {2, 3}
        updated = {2.0, 3}
        updated.intersection_update({2, 5, 6})
        more = {2.0, 3, 4} & {2, 3}, {2.0} & {2, 3}, {2.0, 3}.intersection([2, 3]), {2.0} | {2}, {2.0, 1} - {1}
        return held, updated, {2.0, 3} & {2, 3}, more, frozenset([2.0, 3]) & {2, 3}

    assert "2.0" in like_eager(kept)


def test_methods_of_numbers_that_are_symbols() -> None:
    def program(x: torch.Tensor, n: int) -> Any:
        return x + n, n.__radd__([1]), n.__add__(1.5), n.__add__(2), n.__floor__(), min(n, False), max(True, n)  # type: ignore[operator]

    run = armature.compile(program, backend="eager")
    for n in (2, 3, 4):
        assert repr(run(torch.ones(2), n)) == repr(program(torch.ones(2), n))


def test_a_method_that_a_variable_holds_is_called_as_it_is() -> None:
    def held() -> Any:
        add = Listed([1]).append
        return add()  # type: ignore[call-arg]

    assert "Listed.append()" in like_eager(held)
    assert "list.append()" in like_eager(REFUSED["append"])


def test_calls_without_an_object_in_code_that_is_run_again() -> None:
    """CPython looks beyond its stack for the object of a method in C: what is there must not matter."""

    def program(x: torch.Tensor) -> Any:
        y = x + 1
        errors = []
        try:
            abs.__lt__(None.__eq__(), None)  # type: ignore[call-arg, attr-defined]
        except TypeError as error:
            errors.append(str(error))
        try:
            str.endswith()  # type: ignore[call-arg]
        except TypeError as error:
            errors.append(str(error))
        return y, errors

    run = armature.compile(program, backend="eager")
    for _ in range(4):
        assert outcome(run) == outcome(program)


def proxied(x: torch.Tensor, shown: Any) -> Any:
    """What a mapping proxy answers is what the object that it shows answers."""
    ordered = collections.OrderedDict(a=1, b=2)
    proxy = types.MappingProxyType(ordered)
    both = proxy == types.MappingProxyType(collections.OrderedDict(b=2, a=1)), proxy | {"c": 1}
    return x + 1, both, proxy, proxy.copy(), shown["a"], shown.get("q"), len(shown), shown.copy(), list(shown)


def test_mapping_proxies_answer_as_what_they_show() -> None:
    run = armature.compile(proxied, backend="eager")
    for held in ({"a": 1}, collections.OrderedDict(a=1), Filled(list, a=2), Counted(a=1), {"a": 1}):
        given = types.MappingProxyType(held)
        assert repr(run(torch.ones(2), given)) == repr(proxied(torch.ones(2), given)), held


def test_a_mapping_proxy_of_a_default_dict_makes_items() -> None:
    def made() -> Any:
        held: Any = collections.defaultdict(list)
        return types.MappingProxyType(held)["q"], held

    assert "'q': []" in like_eager(made)


def begins_anew(x: torch.Tensor, given: Any) -> Any:
    made = Filled(list)
    for held in (made, given):
        held.default_factory = int
    return x + 1, made["a"], given["a"], made, given


def test_the_factory_of_a_derived_default_dict_is_set() -> None:
    run = armature.compile(begins_anew, backend="eager")
    for _ in range(2):
        assert repr(run(torch.ones(2), Filled(list))) == repr(begins_anew(torch.ones(2), Filled(list)))


WORDS = ["abc", "bde", "cfa", "dag", "ebh", "fac", "gbd", "hca", "aaa"]  # enough for some to stand in the way of others


def sets_of_words(x: torch.Tensor, words: list[str]) -> Any:
    grown = Kept(words)
    grown.add("grown")
    lost = Kept(words)
    lost.discard(words[0])
    return (
        x + 1,
        Kept(words),
        Frozen(words),
        Kept("".join(words)),
        Frozen(set(words)),
        grown,
        Kept(frozenset(words)),
        lost,
    )


@pytest.mark.parametrize("count", range(2, len(WORDS) + 1))
def test_sets_of_derived_classes_have_the_order_of_python(count: int) -> None:
    words = WORDS[:count]
    armature.reset()
    found = armature.compile(sets_of_words, backend="eager")(torch.ones(2), words)
    for ours, theirs in zip(found[1:], sets_of_words(torch.ones(2), words)[1:]):
        assert list(ours) == list(theirs)


def test_variables_are_told_in_the_order_of_the_function() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        try:
            first = functools.partial()  # type: ignore[call-arg]
        except TypeError:
            first = None  # type: ignore[assignment]
        try:
            second = len()  # type: ignore[call-arg]
        except TypeError:
            second = 2
        return y, list(vars()), first, second

    assert armature.compile(program, backend="eager")(torch.ones(2))[1:] == program(torch.ones(2))[1:]
