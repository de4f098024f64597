"""What Python says of operations that fail: the same class and the same words."""

# ruff: noqa: C405, C406, C416, F505, F507, F524, F821, F841, RUF015, RUF016, RUF017, SIM223, UP031 - it is what is tested

from __future__ import annotations

import collections
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from tests.support.resuming import resumes
from tests.support.tracing import programs


def one() -> tuple[torch.Tensor]:
    return (torch.linspace(-1.0, 1.0, 6).reshape(2, 3),)


def tries(*fns):
    out = []
    for fn in fns:
        try:
            out.append(fn())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


class Nothing:
    pass


class BadInt:
    def __int__(self):
        return "x"

    def __float__(self):
        return 1

    def __complex__(self):
        return 1

    def __index__(self):
        return 1.5

    def __bool__(self):
        return 1

    def __len__(self):
        return -1

    def __str__(self):
        return 5

    def __repr__(self):
        return 6

    def __hash__(self):
        return "h"

    def __iter__(self):
        return 3

    def __contains__(self, x):
        return []

    def __round__(self, n=None):
        return "rounded"

    def __abs__(self):
        return "abs"

    def __format__(self, spec):
        return 3

    def __bytes__(self):
        return "no"

    def __trunc__(self):
        return "t"

    def __floor__(self):
        return "f"

    def __ceil__(self):
        return "c"

    def __divmod__(self, o):
        return "dm"

    def __reversed__(self):
        return "rev"

    def __dir__(self):
        return ["b", "a"]


class LenStr:
    def __len__(self):
        return "x"


class LenBig:
    def __len__(self):
        return 2**70


class LenFloat:
    def __len__(self):
        return 2.0


class BoolLen:
    def __len__(self):
        return 0


class SubInt(int):
    pass


class RetSub:
    def __int__(self):
        return SubInt(4)

    def __index__(self):
        return SubInt(5)


class Idx:
    def __index__(self):
        return 2


def ints(t):
    n, b = Nothing(), BadInt()
    return t + 1, tries(
        lambda: int(n),
        lambda: int(b),
        lambda: int([]),
        lambda: int(None),
        lambda: int("zz"),
        lambda: int("12", 99),
        lambda: int(1.5, 2),
        lambda: int("1_0"),
        lambda: int({}),
        lambda: int(1j),
        lambda: int(float("nan")),
        lambda: int(float("inf")),
        lambda: int(Idx()),
        lambda: int("7", Idx()),
        lambda: int(x=1),
        lambda: int(b"12"),
    )


def floats(t):
    n, b = Nothing(), BadInt()
    return t + 1, tries(
        lambda: float(n),
        lambda: float(b),
        lambda: float([]),
        lambda: float(None),
        lambda: float("zz"),
        lambda: float(1j),
        lambda: float(Idx()),
        lambda: float({}),
        lambda: float(" 1.5 "),
        lambda: float(10**400),
    )


def complexes(t):
    n, b = Nothing(), BadInt()
    return t + 1, tries(
        lambda: complex(n),
        lambda: complex(b),
        lambda: complex([]),
        lambda: complex(None),
        lambda: complex("1+2j"),
        lambda: complex("q"),
        lambda: complex(1, "2"),
        lambda: complex(Idx()),
        lambda: complex(1, 2),
        lambda: complex(1, Nothing()),
    )


def indexes(t):
    n, b = Nothing(), BadInt()
    return t + 1, tries(
        lambda: operator.index(n),
        lambda: operator.index(b),
        lambda: [1, 2][n],
        lambda: [1, 2][b],
        lambda: (1, 2)["a"],
        lambda: "abc"[n],
        lambda: "abc"[1.0],
        lambda: [1, 2][1.5],
        lambda: [1][None],
        lambda: -1 in b"ab",
        lambda: 256 not in b"ab",
        lambda: range(n),
        lambda: range(1.5),
        lambda: range(3)["x"],
        lambda: range(Idx()),
        lambda: [1, 2, 3][Idx()],
        lambda: "abc"[Idx()],
        lambda: (1, 2, 3)[Idx() :],
        lambda: [1, 2, 3][n:],
        lambda: operator.index(Idx()),
        lambda: operator.index(1.5),
        lambda: operator.index("x"),
        lambda: b"abc"[1.5],
        lambda: {}[[]],
        lambda: hex(Idx()),
        lambda: hex(n),
        lambda: bin(1.5),
        lambda: chr(Idx()),
        lambda: chr(-1),
        lambda: ord("ab"),
        lambda: ord(1),
    )


def rounds(t):
    n, b = Nothing(), BadInt()
    return t + 1, tries(
        lambda: round(n),
        lambda: round(b),
        lambda: round(1.567, 2),
        lambda: round("x"),
        lambda: round(1.5, "x"),
        lambda: round(None),
        lambda: round(2.5),
        lambda: 1,
        lambda: round(1.5, Idx()),
        lambda: abs(n),
        lambda: abs(b),
        lambda: abs("x"),
        lambda: abs([]),
        lambda: divmod(n, 1),
        lambda: divmod(b, 1),
        lambda: divmod(1, n),
        lambda: divmod(1, 0),
        lambda: divmod(t, 1)[0].tolist(),
        lambda: divmod(1, t)[0].tolist(),
        lambda: divmod(t, t)[0].tolist(),
        lambda: divmod("a", 1),
        lambda: pow(2, -1, 0),
        lambda: pow(n, 2),
        lambda: pow("a", 2),
        lambda: pow(2, 3, 5),
        lambda: pow(2.0, 3, 5),
        lambda: math.floor(n),
        lambda: math.floor(b),
        lambda: math.ceil(b),
        lambda: math.trunc(b),
        lambda: math.trunc(n),
        lambda: math.sqrt(-1),
        lambda: math.sqrt("x"),
        lambda: math.sqrt(n),
        lambda: math.factorial(-1),
        lambda: math.gcd(4, 6),
        lambda: math.isclose(1.0, 1.0 + 1e-12),
        lambda: math.log(0),
        lambda: math.sqrt(Idx()),
    )


def bools(t):
    n, b = Nothing(), BadInt()
    return t + 1, tries(
        lambda: bool(n),
        lambda: bool(b),
        lambda: not b,
        lambda: bool(LenStr()),
        lambda: bool(LenBig()),
        lambda: bool(LenFloat()),
        lambda: bool(BoolLen()),
        lambda: 1 if b else 2,
        lambda: b and 1,
        lambda: all([b]),
        lambda: any([b]),
        lambda: [x for x in [1] if b],
        lambda: bool(1, 2),
    )


def lens(t):
    n, b = Nothing(), BadInt()
    return t + 1, tries(
        lambda: len(n),
        lambda: len(b),
        lambda: len(LenStr()),
        lambda: len(LenBig()),
        lambda: len(LenFloat()),
        lambda: len(5),
        lambda: len(None),
        lambda: len(),
        lambda: len([], []),
        lambda: len(iter([])),
        lambda: len(x for x in []),
        lambda: len(int),
        lambda: len(zip()),
    )


def texts(t):
    n, b = Nothing(), BadInt()
    return t + 1, tries(
        lambda: str(b),
        lambda: repr(b),
        lambda: f"{b}",
        lambda: f"{b!r}",
        lambda: f"{b!s:>5}",
        lambda: format(b),
        lambda: format(b, "x"),
        lambda: format(1, "zz"),
        lambda: "%d" % "x",
        lambda: "%s" % (),
        lambda: "%s %s" % (1,),
        lambda: "%d" % 1.5,
        lambda: "%x" % 1.5,
        lambda: "%(a)s" % {"a": 1},
        lambda: "%(b)s" % {},
        lambda: "{} {}".format(1),
        lambda: "{a}".format(),
        lambda: f"{(1).x}",
        lambda: f"{[1, 2][1]}",
        lambda: "{:{}}".format("a", 5),
        lambda: "%*d" % (5, 1),
        lambda: "{!r}".format("a"),
        lambda: format("a", "d"),
        lambda: format([], "d"),
        lambda: ascii("é"),
        lambda: str(b"x", "ascii"),
        lambda: str(1, "ascii"),
        lambda: bytes(b),
        lambda: bytes("x"),
        lambda: bytes(-1),
        lambda: bytes([256]),
        lambda: bytes(3),
        lambda: bytes([1, 2]),
    )


def iters(t):
    n, b = Nothing(), BadInt()
    return t + 1, tries(
        lambda: iter(n),
        lambda: iter(b),
        lambda: list(n),
        lambda: list(b),
        lambda: [*b],
        lambda: next(n),
        lambda: next(5),
        lambda: next([]),
        lambda: iter(5),
        lambda: list(None),
        lambda: tuple(5),
        lambda: set(5),
        lambda: dict(5),
        lambda: dict([1]),
        lambda: dict([(1,)]),
        lambda: dict(["abc"]),
        lambda: sum(5),
        lambda: sum(["a"]),
        lambda: sum([[1]], []),
        lambda: sum(["a"], ""),
        lambda: sum([b"a"], b""),
        lambda: max([]),
        lambda: min([]),
        lambda: max(5),
        lambda: max(),
        lambda: max(1, "a"),
        lambda: min([], default=3),
        lambda: max([1, 2], key=lambda v: -v),
        lambda: max(1, 2, default=3),
        lambda: sorted([1, "a"]),
        lambda: sorted(5),
        lambda: reversed(5),
        lambda: reversed(b),
        lambda: list(reversed({1: 2})),
        lambda: reversed({1}),
        lambda: enumerate(5),
        lambda: list(enumerate([1], "a")),
        lambda: zip(5),
        lambda: list(zip([1], [1, 2], strict=True)),
        lambda: list(zip([1, 2], [1], strict=True)),
        lambda: list(zip([1], [1], [1, 2], strict=True)),
        lambda: map(5),
        lambda: list(map(5, [1])),
        lambda: list(filter(5, [1])),
        lambda: any(5),
        lambda: 1 in 5,
        lambda: 1 in n,
        lambda: 1 in b,
        lambda: "a" in "abc",
        lambda: 1 in "abc",
        lambda: iter(int, 0),
        lambda: iter(5, 0),
        lambda: list(iter([1, 2].pop, 1)),
    )


def hashes(t):
    n, b = Nothing(), BadInt()
    return t + 1, tries(
        lambda: hash(b),
        lambda: hash([]),
        lambda: {b: 1},
        lambda: {[]: 1},
        lambda: {1, []},
        lambda: hash((1, [])),
        lambda: {}[{}],
        lambda: hash(slice(1)),
        lambda: hash(1),
        lambda: hash("a") == hash("a"),
        lambda: {(1, {}): 2},
        lambda: frozenset([[]]),
        lambda: set([{}]),
        lambda: dict([([], 1)]),
    )


def calls(t):
    n = Nothing()

    def f(a, b, *, c):
        return a

    def g(a, b=1, /, *args, **kw):
        return a, b, args, kw

    def h(a, b):
        return a

    return t + 1, tries(
        lambda: n(),
        lambda: (5)(),
        lambda: f(),
        lambda: f(1),
        lambda: f(1, 2),
        lambda: f(1, 2, 3),
        lambda: f(1, 2, c=1, d=2),
        lambda: f(1, a=2),
        lambda: g(),
        lambda: g(1, a=2),
        lambda: g(b=2),
        lambda: h(1, 2, 3),
        lambda: h(*[1, 2, 3, 4]),
        lambda: h(**{"a": 1}),
        lambda: h(1, **{"a": 1}),
        lambda: h(*5),
        lambda: h(**5),
        lambda: h(**{1: 2}),
        lambda: h(),
        lambda: (lambda: 1)(2),
        lambda: (lambda x, y, z: 1)(),
        lambda: f(1, 2, 3, c=4),
        lambda: f(1, 2, 3, d=4),
        lambda: h(1, c=3),
        lambda: h(c=3, d=4),
    )


def operators_(t):
    n, b = Nothing(), BadInt()
    return t + 1, tries(
        lambda: n + 1,
        lambda: 1 + n,
        lambda: n < 1,
        lambda: n > 1,
        lambda: -n,
        lambda: ~n,
        lambda: +n,
        lambda: n @ 1,
        lambda: n[0],
        lambda: n(1),
        lambda: n.x,
        lambda: setattr(n, "y", 1),
        lambda: delattr(n, "zz"),
        lambda: "a" + 1,
        lambda: 1 + "a",
        lambda: [1] + (1,),
        lambda: (1,) + [1],
        lambda: [1] * "a",
        lambda: "a" * 1.5,
        lambda: {} + {},
        lambda: {} | [],
        lambda: {1} | [1],
        lambda: {1} - [1],
        lambda: None + 1,
        lambda: None < 1,
        lambda: [1] < [1, "a"],
        lambda: [1, 2] < [1, "a"],
        lambda: (1,) < [1],
        lambda: 1 << -1,
        lambda: 1 << 2.0,
        lambda: 1 // 0,
        lambda: 1 % 0,
        lambda: 1.0 / 0,
        lambda: 0**-1,
        lambda: 1.5 // 0.0,
        lambda: 1.5 % 0.0,
        lambda: "a" % 1,
        lambda: -"a",
        lambda: ~1.5,
        lambda: [] @ [],
        lambda: 1 @ 2,
        lambda: 1j < 2j,
        lambda: 1 and None,
        lambda: not [],
        lambda: (5).foo,
        lambda: [].foo,
        lambda: {}.foo,
        lambda: "".foo,
        lambda: (1,).foo,
        lambda: None.foo,
        lambda: len.foo,
        lambda: (lambda: 1).foo,
        lambda: int.foo,
        lambda: Nothing.foo,
        lambda: math.foo,
        lambda: {1}.foo,
        lambda: range(3).foo,
        lambda: (1).real,
        lambda: True + True,
    )


def dels(t):
    out = []

    def local():
        x = 1
        del x
        return x

    def cell():
        x = 1

        def inner():
            return x

        del x
        return inner()

    def unbound():
        if t is None:
            y = 1
        return y

    def unbound_del():
        if t is None:
            y = 1
        del y

    def missing():
        return does_not_exist

    def nonlocal_del():
        z = 1

        def k():
            nonlocal z
            del z

        k()
        return z

    def aug():
        w += 1
        return w

    def comp():
        return [q for q in range(3)], q

    return t + 1, tries(local, cell, unbound, unbound_del, missing, nonlocal_del, aug, comp)


def unpacks(t):
    n = Nothing()

    def two(v):
        a, b = v
        return a, b

    def star(v):
        a, *b, c = v
        return a, b, c

    def nested(v):
        (a, b), c = v
        return a, b, c

    return t + 1, tries(
        lambda: two([1]),
        lambda: two([1, 2, 3]),
        lambda: two(5),
        lambda: two(n),
        lambda: two({1: 2, 3: 4}),
        lambda: two("ab"),
        lambda: two(iter([1])),
        lambda: two(iter([1, 2, 3])),
        lambda: star([1]),
        lambda: star([1, 2]),
        lambda: star([1, 2, 3, 4]),
        lambda: star(5),
        lambda: star(iter([])),
        lambda: nested([[1], 2]),
        lambda: nested([[1, 2], 2]),
        lambda: nested([5, 2]),
        lambda: two(x for x in range(5)),
        lambda: two(None),
        lambda: [*n],
        lambda: {**n},
        lambda: {**[1]},
        lambda: (*5,),
        lambda: two({1, 2, 3}),
        lambda: two(range(2)),
    )


def lists(t):
    items = [1, 2, 3]
    return t + 1, tries(
        lambda: items.index(9),
        lambda: items.remove(9),
        lambda: [].pop(),
        lambda: items.pop(9),
        lambda: items.insert("a", 1),
        lambda: items.append(),
        lambda: items.append(1, 2),
        lambda: items.extend(5),
        lambda: items.count(),
        lambda: items[9],
        lambda: items.__setitem__(9, 1),
        lambda: items.__setitem__("a", 1),
        lambda: items.__delitem__(9),
        lambda: items.__setitem__(slice(0, 3, 2), [1]),
        lambda: items.sort(key=5),
        lambda: items.sort(1),
        lambda: items.sort(foo=1),
        lambda: items.index(1, 1),
        lambda: items.__setitem__(slice(0, 1), 5),
        lambda: (1, 2).index(3),
        lambda: (1, 2)[5],
        lambda: items.copy(),
        lambda: items * 2,
        lambda: items.__mul__("a"),
        lambda: items.__add__((1,)),
        lambda: items.pop("a"),
        lambda: items.reverse(1),
        lambda: items.clear(2),
        lambda: items,
    )


def dicts(t):
    d = {"a": 1}
    return t + 1, tries(
        lambda: d["b"],
        lambda: d.pop("b"),
        lambda: d.pop(),
        lambda: {}.popitem(),
        lambda: d.update(5),
        lambda: d.update([1]),
        lambda: d.update({}, {}),
        lambda: d.get(),
        lambda: d.get([]),
        lambda: d.setdefault([], 1),
        lambda: dict.fromkeys(5),
        lambda: dict(a=1, **{"b": 2}),
        lambda: dict({}, {}),
        lambda: d.fromkeys([1], 2),
        lambda: d | {"b": 2},
        lambda: d | 5,
        lambda: d.__delitem__("z"),
        lambda: d.pop("a", 1, 2),
        lambda: d.__getitem__("q"),
        lambda: d.keys() | [1],
        lambda: d.keys() & {"a"},
        lambda: d.items() - [("a", 1)],
        lambda: d.keys()[0],
        lambda: list(d.items())[0],
        lambda: d.has_key("a"),
        lambda: {1: 1, **{2: 2}},
        lambda: dict(**{"x": 1}),
        lambda: collections.Counter("abca").most_common(1),
        lambda: collections.Counter(5),
        lambda: collections.OrderedDict().popitem(),
        lambda: collections.OrderedDict().move_to_end(1),
        lambda: collections.defaultdict(5),
        lambda: collections.defaultdict(list)[1],
        lambda: collections.defaultdict()[1],
    )


def sets(t):
    s = {1}
    return t + 1, tries(
        lambda: s.remove(5),
        lambda: set().pop(),
        lambda: s.add([]),
        lambda: s.update(5),
        lambda: s.union(5),
        lambda: s | 5,
        lambda: s.discard([]),
        lambda: [] in s,
        lambda: s <= 5,
        lambda: s == 5,
        lambda: frozenset([1]).add(1),
        lambda: s.issubset([1, 2]),
        lambda: s ^ {1, 2},
        lambda: s.isdisjoint(5),
        lambda: set(1, 2),
        lambda: s < {1, 2},
        lambda: s.symmetric_difference([3]),
        lambda: s[0],
        lambda: hash(s),
        lambda: {s: 1},
    )


def strs(t):
    return t + 1, tries(
        lambda: "a".join([1]),
        lambda: "a".join(5),
        lambda: "a".index("b"),
        lambda: ["", "a", ",", "b", ""],
        lambda: "a".foo(),
        lambda: "a".zfill(),
        lambda: "abc".replace("a"),
        lambda: "a" * -1,
        lambda: "abc"[5],
        lambda: "abc".startswith(1),
        lambda: "abc".startswith(("a", "b")),
        lambda: "a".encode("foo"),
        lambda: b"\xff".decode(),
        lambda: "a".center("x"),
        lambda: "a".join("xyz"),
        lambda: "%s" % "a",
        lambda: "a".translate({97: "b"}),
        lambda: "A-B".partition("-"),
        lambda: "x".isdigit(),
        lambda: "a\tb".expandtabs(4),
        lambda: "abc".find("c", Idx()),
        lambda: str.join(",", ["a", "b"]),
        lambda: str.upper("a"),
        lambda: str.maketrans("a", "b"),
        lambda: "a" < 1,
        lambda: "a" == 1,
        lambda: "a".__add__(1),
    )


@pytest.mark.parametrize("program", programs(globals()))
@pytest.mark.filterwarnings("ignore:armature compiled tries")
def test_like_eager(program: Callable[..., Any]) -> None:
    resumes(program, one)


CLAUSES = (
    (ZeroDivisionError, KeyError), ((ZeroDivisionError,), KeyError), [ZeroDivisionError], int, 5, None, (KeyError, "a"), (),
)  # fmt: skip


@pytest.mark.parametrize("clause", CLAUSES, ids=str)
def test_what_a_clause_may_name(clause: Any) -> None:
    def plain(t: torch.Tensor) -> Any:
        try:
            try:
                1 / 0
            except clause:
                return t + 1, "taken"
        except TypeError as error:
            return t + 1, str(error)
        except ZeroDivisionError:
            return t + 1, "left"

    def star(t: torch.Tensor) -> Any:
        seen = []
        try:
            try:
                1 / 0
            except* clause:
                seen.append("taken")
        except* TypeError as group:
            seen.append(str(group.exceptions[0]))
        except* ZeroDivisionError:
            seen.append("left")
        return t + 1, seen

    for fn in (plain, star):
        assert str(armature.compile(fn, backend="eager")(*one())) == str(fn(*one()))
