"""Small programs full of the language: what breaks the graph stands in the middle of what must survive it."""

# ruff: noqa: B012, B019, B023, SIM107 - it is what is tested

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import operator
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support.resuming import resumes
from tests.support.tracing import programs


def one() -> tuple[torch.Tensor]:
    return (torch.linspace(-1.0, 1.0, 6).reshape(2, 3),)


def throw_across(t):
    log = []

    def g():
        try:
            a = yield 1
            log.append(a)
            yield 2
        except ValueError as e:
            log.append(repr(e))
            yield 3
        finally:
            log.append("fin")

    it = g()
    next(it)
    print("brk")
    r = it.throw(ValueError("q"))
    rest = list(it)
    return t * r, log, rest


def close_across(t):
    log = []

    def g():
        try:
            while True:
                yield len(log)
        finally:
            log.append("closed")

    it = g()
    next(it)
    print("brk")
    it.close()
    print(log)
    return t + 1, log


def ret_in_finally_loop(t):
    out = []

    def f(n):
        for i in range(n):
            try:
                if i == 2:
                    return i
                out.append(i)
            finally:
                out.append(-i)
                if i == 1:
                    continue
        return "end"

    a = f(5)
    print(a)
    return t * 2, a, out


def finally_return_override(t):
    def f():
        for i in range(3):
            try:
                return 1
            finally:
                if i < 2:
                    continue
                return 2

    return t + f(), f()


class M:
    def __init__(self, log, name, swallow=False):
        self.log, self.name, self.swallow = log, name, swallow

    def __enter__(self):
        self.log.append("+" + self.name)
        return self

    def __exit__(self, *e):
        self.log.append("-" + self.name + (e[0].__name__ if e[0] else ""))
        return self.swallow


def nested_with(t):
    log = []
    for i in range(4):
        with M(log, "a"), M(log, "b", True):
            if i == 1:
                continue
            print("in", i)
            if i == 2:
                raise KeyError(i)
            if i == 3:
                break
            t = t + i
        log.append(i)
    return t, log


def exc_group(t):
    log = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), ExceptionGroup("h", [KeyError(3), ValueError(4)])])
    except* ValueError as eg:
        log.append([str(e) for e in eg.exceptions if not isinstance(e, ExceptionGroup)])
        log.append(eg.message)
    except* (TypeError, KeyError) as eg:
        log.append(len(eg.exceptions))
    return t + 1, log


def exc_group_break(t):
    log = []
    try:
        print("x")
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError as eg:
        print("handled")
        log.append(len(eg.exceptions))
    except* TypeError:
        log.append("t")
        t = t * 2
    return t + 1, log


def exc_group_methods(t):
    eg = ExceptionGroup("g", [ValueError(1), TypeError(2)])
    a, b = eg.split(ValueError)
    return t + 1, repr(a), repr(b), str(eg), eg.subgroup(TypeError).exceptions[0].args


def exc_group_reraise(t):
    try:
        try:
            raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
        except* ValueError as eg:
            raise RuntimeError("new") from eg
    except ExceptionGroup as e:
        return t + 1, e.message, [type(x).__name__ for x in e.exceptions]


def class_in_fn(t):
    k = 3

    class A:
        x = k

        def __init__(self, v):
            self.v = v

        def get(self):
            return self.v * self.x

        @classmethod
        def make(cls, v):
            return cls(v)

        @staticmethod
        def st(a):
            return a + k

        @property
        def p(self):
            return self.v + 1

    print(A.__name__)
    a = A.make(t)
    return a.get(), A.st(1), a.p


class Pt:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


@dataclasses.dataclass
class DC:
    a: int
    b: list = dataclasses.field(default_factory=list)
    c: str = "c"


def match_cls(t):
    out = []
    for v in (
        Pt(0, 1),
        Pt(2, 0),
        Pt(3, 3),
        DC(1),
        DC(2, [5]),
        5,
        "s",
        [1, 2, 3],
        {"k": 1, "z": 2},
        None,
        2.5,
        (1, (2, 3)),
    ):
        match v:
            case Pt(0, y):
                out.append(("y", y))
            case Pt(x, y=0):
                out.append(("x", x))
            case Pt(x, y) if x == y:
                out.append("same")
                print("same")
            case DC(1, b):
                out.append(b)
            case DC(a, [first, *_]):
                out.append((a, first))
            case int(n):
                out.append(n)
            case str() as s:
                out.append(s)
            case [1, *rest]:
                out.append(rest)
            case {"k": k, **rest}:
                out.append((k, rest))
            case None:
                out.append("none")
            case float() | complex():
                out.append("num")
            case _:
                out.append("other")
    return t + 1, out


def match_errors(t):
    class B:
        __match_args__ = ("x",)
        x = 1

    out = []
    try:
        match B():
            case B(1, 2):
                pass
    except TypeError as e:
        out.append(str(e))
    try:
        match B():
            case B(1, x=1):
                pass
    except TypeError as e:
        out.append(str(e))
    return t + 1, out


def async_called(t):
    async def f(x):
        return x + 1

    c = f(t)
    c.close()
    return t * 2, type(c).__name__


def async_driven(t):
    async def f(x):
        return x + 1

    async def g(x):
        return await f(x) * 2

    c = g(t)
    try:
        c.send(None)
    except StopIteration as e:
        return e.value


def closures_loop(t):
    fs = [lambda: i for i in range(3)]
    gs = []
    for j in range(3):

        def g():
            return j

        gs.append(g)
    print(j)
    hs = [lambda j=j: j for j in range(3)]
    return t + 1, [f() for f in fs], [g() for g in gs], [h() for h in hs]


def nonlocal_break(t):
    n = 0

    def inc():
        nonlocal n
        n += 1
        return n

    inc()
    print(n)
    inc()
    print(n)
    n = 10
    return t + inc(), n


def deco_state(t):
    def counted(fn):
        @functools.wraps(fn)
        def w(*a, **k):
            w.calls += 1
            return fn(*a, **k)

        w.calls = 0
        return w

    @counted
    def f(x):
        return x * 2

    f(t)
    print("b")
    r = f(t)
    return r, f.calls, f.__name__, f.__wrapped__.__name__


@functools.cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def lru(t):
    return t + fib(20)


def lru_inside(t):
    calls = []

    @functools.lru_cache(maxsize=2)
    def f(n):
        calls.append(n)
        return n * 2

    r = [f(1), f(2), f(1), f(3), f(2)]
    return t + 1, r, calls, f.cache_info()


def cache_inside(t):
    calls = []

    @functools.cache
    def f(n):
        calls.append(n)
        return n * 2

    f(1)
    print("x")
    f(1)
    f(2)
    return t + 1, calls


@functools.singledispatch
def show(v):
    return "any"


@show.register
def _(v: int):
    return "int"


@show.register(list)
def _(v):
    return "list"


def single(t):
    return t + 1, show(1), show([]), show("s"), show(True), show.dispatch(int)(3)


class Cached:
    def __init__(self):
        self.n = 0

    @functools.cached_property
    def big(self):
        self.n += 1
        return [self.n]

    @functools.singledispatchmethod
    def m(self, v):
        return "any"

    @m.register
    def _(self, v: int):
        return "int"


def cached_prop(t):
    c = Cached()
    a = c.big
    print("b")
    b = c.big
    d = c.n
    del c.big
    return t + d, a is b, c.big, c.n, c.m(1), c.m("s")


@dataclasses.dataclass(order=True, frozen=True)
class DF:
    x: int = 3
    y: list = dataclasses.field(default_factory=list, compare=False)
    z: int = dataclasses.field(init=False, default=9)


@dataclasses.dataclass
class DP:
    x: int
    y: dataclasses.InitVar[int] = 2

    def __post_init__(self, y):
        self.s = self.x + y


def dataclasses_(t):
    a, b = DF(), DF(4, [1])
    out = [a < b, a == DF(), repr(b), dataclasses.replace(b, x=7), dataclasses.asdict(b), DP(1).s, DP(1, 5).s]
    try:
        a.x = 1
    except dataclasses.FrozenInstanceError as e:
        out.append(str(e))
    try:
        DF(1, 2, 3)
    except TypeError as e:
        out.append(str(e))
    try:
        DP()
    except TypeError as e:
        out.append(str(e))
    return t + 1, [str(o) for o in out], [f.name for f in dataclasses.fields(a)]


NT = collections.namedtuple("NT", "a b c", defaults=[7])


class NTT(typing.NamedTuple):
    p: int
    q: str = "q"

    def both(self):
        return (self.p, self.q)


def namedtuples(t):
    n = NT(1, 2)
    m = n._replace(b=5)
    out = []
    for f in (
        lambda: n._replace(zz=1),
        lambda: NT(),
        lambda: NT(1, 2, 3, 4),
        lambda: NT(1, a=2),
        lambda: NT(1, 2, d=3),
        lambda: n.zz,
        lambda: setattr(n, "a", 3),
        lambda: NT._make([1]),
    ):
        try:
            out.append(f())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return (
        t + m.b,
        n,
        m,
        n._asdict(),
        NT._fields,
        NT._make([1, 2, 3]),
        NTT(1).both(),
        n == (1, 2, 7),
        n < m,
        hash(n) == hash((1, 2, 7)),
        out,
        repr(n),
        n + (1,),
        n[1:],
        NT._field_defaults,
    )


class Fl(enum.Flag):
    A = 1
    B = 2
    C = 4
    AB = A | B


class IFl(enum.IntFlag):
    X = 1
    Y = 2


class Col(enum.Enum):
    RED = "r"
    GREEN = "g"

    @property
    def low(self):
        return self.name.lower()

    @classmethod
    def first(cls):
        return next(iter(cls))


class SE(enum.StrEnum):
    P = "p"
    Q = enum.auto()


def enums_(t):
    f = Fl.A | Fl.C
    print(f)
    return (
        t + f.value,
        Fl.A in f,
        f & Fl.AB,
        ~Fl.A,
        f ^ Fl.C,
        list(f),
        bool(Fl(0)),
        IFl.X | 8,
        IFl.X + 1,
        Col["RED"],
        Col.RED.low,
        Col.first(),
        SE.Q == "q",
        f"{SE.P}",
        repr(f),
        Fl(3),
        [c.name for c in Col],
        Col.RED is Col("r"),
        IFl.X < IFl.Y,
        len(Fl.AB),
        str(Col.RED),
        f"{Col.RED}",
    )


def chain_counter(t):
    c = collections.Counter("aab")
    d = collections.Counter(a=1, c=2)
    cm = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    ch = cm.new_child({"z": 9})
    ch["q"] = 1
    print(len(c))
    return (
        t + c["a"],
        c + d,
        c - d,
        c & d,
        c | d,
        +c,
        -c,
        c.most_common(),
        list(c.elements()),
        c.total(),
        dict(cm),
        list(ch),
        ch.parents["b"],
        ch.maps[0],
        c["zz"],
        sorted(c.items()),
        c == collections.Counter("aba"),
        c <= d,
    )


class PMO:
    def go(self, a, b=0, *, c=0):
        return (a, b, c)

    g2 = functools.partialmethod(go, 2, c=5)


def partialmethods(t):
    p = PMO()
    return (
        t + 1,
        p.g2(),
        p.g2(3),
        p.g2(4, c=9),
        functools.partial(p.go, 1)(2),
        functools.reduce(operator.add, [1, 2, 3], 10),
        functools.cmp_to_key(lambda a, b: b - a)(1) < functools.cmp_to_key(lambda a, b: b - a)(2),
        sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a)),
    )


class SN:
    def __set_name__(self, owner, name):
        self.name = name
        self.owner = owner.__name__

    def __get__(self, obj, cls=None):
        return (self.name, self.owner, obj is None)


def set_name(t):
    class H:
        f = SN()
        g = SN()

    print("p")
    return t + 1, H.f, H().g


class Base:
    subs = []

    def __init_subclass__(cls, tag=None, **kw):
        super().__init_subclass__(**kw)
        Base.subs.append((cls.__name__, tag))


def init_subclass_(t):
    Base.subs.clear()

    class D(Base, tag="t"):
        pass

    class E2(D):
        pass

    return t + 1, list(Base.subs)


class Meta(type):
    def __call__(cls, *a, **k):
        o = super().__call__(*a, **k)
        o.tagged = True
        return o

    def __getattr__(cls, n):
        return "meta " + n

    def __iter__(cls):
        return iter([1, 2])

    def __len__(cls):
        return 5

    def __contains__(cls, x):
        return x == 3

    def __add__(cls, o):
        return o


class WM(metaclass=Meta):
    def __init__(self, v):
        self.v = v

    def __class_getitem__(cls, k):
        return (cls.__name__, k)


def metas(t):
    o = WM(2)
    print("m")
    return t + o.v, o.tagged, WM.zork, list(WM), len(WM), 3 in WM, WM + 4, WM["k"]


class Sl:
    __slots__ = ("a", "b")


def slots_(t):
    s = Sl()
    s.a = 1
    out = []
    for f in (lambda: s.b, lambda: setattr(s, "z", 1), lambda: s.__dict__, lambda: delattr(s, "b")):
        try:
            out.append(f())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    print("s")
    del s.a
    return t + 1, hasattr(s, "a"), out


LOG = []


@functools.lru_cache
def loud(n):
    LOG.append(n)
    return n * 2


@functools.lru_cache
def noisy(n):
    print("noisy", n)
    return n * 2


@functools.lru_cache
def rnd(n):
    return torch.rand(n)


@functools.lru_cache
def table(n):
    return [i * i for i in range(n)]


class Keeps:
    @functools.lru_cache
    def m(self, n):
        return n + 1

    @staticmethod
    @functools.lru_cache
    def s(n):
        return n + 2


def cached_writes(t):
    return t + loud(1) + loud(1) + loud(2), list(LOG)


def cached_prints(t):
    return t + noisy(1) + noisy(1)


def cached_random(t):
    return t[0] + rnd(3) + rnd(3), rnd(3) is rnd(3)


def cached_list(t):
    return t + sum(table(4)), table(4) is table(4)


def cached_methods(t):
    return t + Keeps().m(1) + Keeps.s(2), loud.__name__, loud.__wrapped__(4)


@pytest.mark.parametrize("program", programs(globals()))
def test_like_eager(program: Callable[..., Any]) -> None:
    def make() -> tuple[torch.Tensor]:
        LOG.clear()
        for cached in (loud, noisy, rnd, table):
            cached.cache_clear()
        return one()

    resumes(program, make)
