"""Small programs over the standard library and the builtins, with prints that break the graph in between."""

# ruff: noqa: B006, B007, C416, F821, RUF017 - it is what is tested

from __future__ import annotations

import copy
import inspect
import io
import json
import math
import operator
import random
import re
import string
import textwrap
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from armature.testing.differential import difference
from tests.support.resuming import compiled, resumes
from tests.support.tracing import programs


def one() -> tuple[torch.Tensor]:
    return (torch.linspace(-1.0, 1.0, 6).reshape(2, 3),)


COUNT = 0
modlike = ModuleType("modlike")
HITS: list[str] = []


def answer(name):
    if name.startswith("dyn_"):
        HITS.append(name)
        return len(name)
    raise AttributeError(f"module has no {name}")


modlike.__getattr__ = answer
modlike.VALUE = 3


def module_getattr(t):
    a = modlike.dyn_a
    b = getattr(modlike, "nope", 7)
    print("x")
    try:
        modlike.zip_zap
    except AttributeError as e:
        c = str(e)
    return t + a, b, c, list(HITS), modlike.VALUE


def fstrings(t):
    w, p, x, s = 10, 3, 3.14159, "hé"
    d = {"k": [1, 2]}
    return (
        t + 1,
        f"{x:{w}.{p}f}|{s!r:>8}|{s!a}|{d['k'][0]=}|{x=:.2f}|{w:#x}|{'ab'}|{{}}|{s:*^{w}}|{None}|{[1, 'a']!s}|{w:,}|{1e10:g}|{True:d}|{x!r:.4}",
        f"{t.shape[0]:03d}|{tuple(t.shape)}|{t.dtype}",
    )


def chained(t):
    log = []

    def v(n):
        log.append(n)
        return n

    a = v(1) < v(3) > v(2) != v(2) < v(9)
    b = v(1) < v(0) < v(5)
    print("c")
    c = v(1) == v(1) in [v(1), v(2)]
    return t + 1, a, b, c, log


def global_ops(t):
    global TEMP, COUNT
    TEMP = 5
    COUNT += 1
    print(COUNT)
    del TEMP
    try:
        return TEMP
    except NameError as e:
        m = str(e)
    try:
        del TEMP
    except NameError as e:
        m2 = str(e)
    COUNT += 1
    return t + COUNT, m, m2


def walrus_comp(t):
    r = [y for x in range(5) if (y := x * 2) > 2]

    def f():
        s = 0
        p = [s := s + i for i in range(4)]
        return s, p

    while (n := len(r)) > 1:
        r.pop()
    print(n)
    return t + y, r, f(), n


def star_index(t):
    d = {(1, 2, 3): "a"}
    k = (2, 3)

    class G:
        def __getitem__(self, i):
            return i

        def __setitem__(self, i, v):
            self.last = (i, v)

    g = G()
    g[1, *k, :2] = 5
    return t[0, *[1]], d[1, *k], g[*k], g.last, [*k, *"ab"], {*k, 2}, (*k,), {**{"a": 1}, "b": 2}


def prints(t):
    buf = io.StringIO()
    print(1, 2, sep="-", end="!\n")
    print("x", file=buf, end="")
    print(*[1, "a"], sep=", ")
    print()
    print("flush", flush=True)
    print({"a": 1}, [t.shape[0]], None)
    return t + 1, buf.getvalue()


def sorts(t):
    data = [("b", 2), ("a", 2), ("c", 1), ("a", 1)]
    items = list(data)
    items.sort(key=lambda p: p[1])
    print(items)
    l2 = sorted(data, key=operator.itemgetter(1, 0), reverse=True)
    l3 = sorted("bAc", key=str.lower)
    l4 = sorted({3: 1, 1: 2})
    l5 = sorted([True, 0.5, 2])
    out = []
    for f in (
        lambda: sorted([1, "a"]),
        lambda: [3, None].sort(),
        lambda: max([], default=None),
        lambda: min("abc", key=lambda c: -ord(c)),
        lambda: max([1, 2], [3]),
        lambda: min({}),
        lambda: max([(1, "b"), (1, "a")]),
    ):
        try:
            out.append(f())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return t + 1, items, l2, l3, l4, l5, out


def slice_assign(t):
    items = list(range(10))
    items[2:5] = [20, 30]
    items[::3] = [0] * len(items[::3])
    items[5:5] = "ab"
    del items[1:4:2]
    items[-2:] = []
    items[:0] = [9]
    print(items)
    out = []
    for f in (
        lambda: items.__setitem__(slice(None, None, 2), [1]),
        lambda: items.__setitem__(slice(0, 2), 5),
        lambda: items[::0],
    ):
        try:
            out.append(f())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    items += (x for x in (7, 8))
    items *= 2
    return t + 1, items, out


def sums(t):
    return (
        sum([t, t], t * 0),
        sum([[1], [2]], []),
        sum((), 5),
        sum([1.5, 2], start=1),
        sum([True, True]),
        sum({1: 2, 3: 4}),
    )


def dict_merge(t):
    a = {"x": 1, "y": 2}
    b = {"y": 3, "z": 4}
    c = a | b
    a |= b
    a.update(q=1)
    print(list(a))
    del a["x"]
    a["x"] = 0
    return (
        t + 1,
        c,
        list(a),
        list(reversed(a)),
        list(a.items() & b.items()),
        a.keys() - b.keys(),
        a == {**a},
        list(dict(zip("ab", [1, 2]))),
        dict.fromkeys("ab", 0),
    )


def zips(t):
    out = [list(zip([1, 2], "ab")), list(enumerate("ab", start=5)), list(zip()), list(zip([1], strict=True))]
    for f in (lambda: list(zip([1], [1, 2], strict=True)), lambda: list(zip([1, 2], [1], strict=True))):
        try:
            out.append(f())
        except ValueError as e:
            out.append(str(e))
    z = zip([1, 2, 3], [4, 5, 6])
    print(next(z))
    out.append(list(z))
    e = enumerate(["a", "b"])
    print(next(e))
    out.append(list(e))
    return t + 1, out


class Rev:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return i * 10


class Rev2(Rev):
    def __reversed__(self):
        yield "r"


def reverseds(t):
    return (
        t + 1,
        list(reversed(Rev(3))),
        list(reversed(Rev2(3))),
        list(Rev(2)),
        10 in Rev(3),
        list(reversed(range(3))),
        list(reversed("ab")),
        list(reversed((1, 2))),
    )


def iter_sentinel(t):
    n = iter([1, 2, 3, 0, 4])
    r = list(iter(lambda: next(n), 0))
    print(r)
    buf = io.StringIO("ab\ncd\n")
    return t + 1, r, list(n), list(iter(lambda: buf.read(2), ""))


def map_errors(t):
    m = map(int, ["1", "x", "3"])
    out = [next(m)]
    try:
        next(m)
    except ValueError as e:
        out.append(str(e))
    out.append(next(m))
    out.append(next(m, "end"))
    f = filter(lambda v: 1 // v, [1, 0, 2, 1])
    out.append(next(f))
    try:
        next(f)
    except ZeroDivisionError as e:
        out.append(str(e))
    out.append(list(f))
    e = enumerate(map(int, ["a", "5"]))
    try:
        next(e)
    except ValueError:
        out.append(next(e))
    z = zip([1, 2], map(int, ["a", "5"]))
    try:
        next(z)
    except ValueError:
        out.append(next(z))
    return t + 1, out


def sentinel_error(t):
    items = [3, 2]
    it = iter(items.pop, 0)
    out = [next(it), next(it)]
    try:
        next(it)
    except IndexError as e:
        out.append(str(e))
    items += [0, 7]
    out.append(next(it))
    out.append(next(it, "end"))
    out.append(next(it, "end"))
    return t + 1, out


class ItErr:
    def __init__(self):
        self.n = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.n += 1
        if self.n == 2:
            raise ValueError("two")
        if self.n in (4, 6):
            raise StopIteration
        return self.n


def iterator_errors(t):
    i = ItErr()
    out = []
    e = enumerate(i)
    for _ in range(7):
        try:
            out.append(next(e))
        except ValueError:
            out.append("V")
        except StopIteration:
            out.append("S")
    return t + 1, out


def gen_from_user_iter(t):
    class C:
        def __iter__(self):
            yield from (1, 2)
            return 5

    def g():
        r = yield from C()
        yield r

    return t + 1, list(g()), [*C()], dict(enumerate(C()))


def bytearrays(t):
    b = bytearray(b"abc")
    b.append(100)
    b[0] = 65
    b += b"!"
    b.extend([1, 2])
    del b[-1]
    return (
        t + len(b),
        bytes(b),
        b == b"Abcd!\x01",
        b[0],
        b[1:3],
        list(b),
        b.decode("latin1"),
        b.find(b"c"),
        65 in b,
        b.hex(),
    )


def bytearray_arg(t, a):
    a.append(5)
    a[0] = 1
    return t + a[0], len(a), bytes(a)


def memoryviews(t):
    m = memoryview(b"hello")
    return t + m[1], bytes(m[1:3]), len(m), m.tolist(), m.readonly, m.nbytes


def memoryview_arg(t, a):
    return t + a[0], a.tolist(), len(a)


def rand_own(t):
    r = random.Random(3)
    return t + r.random(), r.randint(1, 9), r.choice("abc"), r.sample(range(9), 3), r.gauss(0, 1)


def rand_arg(t, a):
    return t + a.random(), a.randint(1, 9), a.uniform(1, 2), a.shuffle([1, 2])


def rand_module(t):
    a = random.random()
    b = random.randint(1, 100)
    items = [1, 2, 3, 4]
    random.shuffle(items)
    c = random.choice(items)
    print("r")
    return t + a, b, items, c, random.uniform(0, 1)


def rand_seed(t):
    random.seed(9)
    s = random.getstate()
    a = random.random()
    random.setstate(s)
    b = random.random()
    return t + a, a == b


def sigs(t):
    def f(a, b: int = 2, *args, c, d=None, **kw) -> str: ...

    class K:
        def __init__(self, x, y=1):
            pass

        def m(self, q):
            pass

        def __call__(self, z):
            pass

    s = inspect.signature(f)
    ba = s.bind(1, c=3)
    return (
        t + 1,
        str(s),
        list(s.parameters),
        s.parameters["b"].default,
        ba.arguments,
        str(inspect.signature(K)),
        str(inspect.signature(K(1).m)),
        str(inspect.signature(K(1))),
        inspect.isfunction(f),
        inspect.ismethod(K(1).m),
        str(s.return_annotation),
    )


def sig_bind(t):
    def f(a, b=2, *, c):
        return a

    s = inspect.signature(f)
    out = []
    for args, kw in (((1,), {"c": 1}), ((), {}), ((1, 2, 3), {"c": 1}), ((1,), {"z": 1, "c": 2})):
        try:
            ba = s.bind(*args, **kw)
            ba.apply_defaults()
            out.append(dict(ba.arguments))
        except TypeError as e:
            out.append(str(e))
    return t + 1, out


def regexes(t):
    m = re.match(r"(\w+)-(\d+)", "ab-12")
    return (
        t + int(m.group(2)),
        m.groups(),
        re.sub("a", "b", "aab"),
        re.findall(r"\d", "1a2"),
        re.compile("x").split("axb"),
    )


def jsons(t):
    return (
        t + 1,
        json.dumps({"a": [1, None]}),
        json.loads('{"b": 2}'),
        textwrap.dedent("  a\n  b"),
        string.Template("$x").substitute(x=1),
        copy.copy([1]),
        copy.deepcopy({"a": [1]}),
    )


def try_in_loop_break(t):
    out = []
    for i in range(4):
        try:
            print("i", i)
            if i == 1:
                continue
            if i == 3:
                break
            out.append(1 // (i - 2))
        except ZeroDivisionError as e:
            print("caught", e)
            out.append(str(e))
        else:
            out.append("else")
        finally:
            print("finally", i)
            out.append(-i)
    else:
        out.append("never")
    return t + len(out), out


def del_loop_vars(t):
    for i in range(3):
        pass
    del i
    try:
        i
    except UnboundLocalError as e:
        m = str(e)
    try:
        raise ValueError("a")
    except ValueError:
        pass
    try:
        e
    except UnboundLocalError as x:
        m2 = str(x)
    print(m)
    return t + 1, m, m2


def kwonly_defaults(t):
    def f(*, a=1, b):
        return a, b

    f.__kwdefaults__["a"] = 5

    def g(x=[]):
        x.append(1)
        return x

    g()
    print(g())
    g()
    return t + 1, f(b=2), g(), f.__kwdefaults__, g.__defaults__


def recursion_break(t):
    def f(n, acc):
        if n == 0:
            print("bottom")
            return acc
        acc = acc + n
        r = f(n - 1, acc)
        return r * 1

    return f(4, t)


def exc_notes(t):
    try:
        try:
            raise ValueError("a")
        except ValueError as e:
            e.add_note("n1")
            print("h")
            raise
    except ValueError as e:
        return t + 1, e.__notes__, e.args


def exc_chain(t):
    out = []
    try:
        try:
            1 // 0
        except ZeroDivisionError:
            raise KeyError("k") from None
    except KeyError as e:
        out += [repr(e.__cause__), repr(e.__context__), e.__suppress_context__]

    class MyErr(Exception):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code

    try:
        raise MyErr(5)
    except MyErr as e:
        out += [e.code, str(e), e.args]
    return t + 1, out


def assert_msg(t):
    out = []
    for v in (1, 0):
        try:
            assert v, f"bad {v}"
            out.append("ok")
        except AssertionError as e:
            out.append(str(e))
    return t + 1, out


def with_return(t):
    class C:
        def __enter__(self):
            return 1

        def __exit__(self, *a):
            print("exit")
            return False

    def f():
        with C() as c:
            return c

    for i in range(2):
        with C():
            print("body")
            if i:
                return t + f(), i


def generators_multi(t):
    def a():
        x = yield "start"
        while x is not None:
            try:
                x = yield x * 2
            except KeyError:
                x = yield "key"
        return "done"

    def b():
        r = yield from a()
        yield r

    g = b()
    out = [next(g), g.send(2), g.throw(KeyError), g.send(3), g.send(None), next(g, "stop")]
    print(out)
    return t + 1, out, g.gi_frame is None


def star_args_break(t):
    def f(*a, k=1, **kw):
        print(a, k, kw)
        return sum(a) + k

    args = (1, 2)
    kw = {"k": 3, "z": 4}
    return t + f(*args, *[3], **kw), f(*(i for i in range(3)))


def comp_scopes(t):
    x = 5
    a = [x for x in range(3)]
    b = {x: y for x, y in zip("ab", [1, 2])}
    c = {x for x in (1, 1)}
    d = [[i * j for j in range(i)] for i in range(4)]
    e = [(i, j) for i in range(3) if i for j in range(i)]
    print(x)
    return t + x, a, b, c, d, e


def obj_identity(t):
    a = []
    b = [a, a]
    c = {"x": a}
    print("i")
    b[0].append(1)
    return t + 1, b, c, b[0] is b[1], b[0] is c["x"]


def int_methods(t):
    return (
        t + (255).bit_length(),
        (10).to_bytes(2, "big"),
        int.from_bytes(b"\x01\x02", "little"),
        (3).as_integer_ratio(),
        (0.5).hex(),
        (2.0).is_integer(),
        ["a", "b"],
        " x ".strip(),
        "ab".title(),
        (-7) // 2,
        -7 % 3,
        divmod(-7, 2),
        round(2.675, 2),
        (7).__add__(1),
        (5).conjugate(),
        1_000,
        0b11,
        complex(1, 2).conjugate(),
        abs(3 + 4j),
        math.prod([1, 2, 3]),
        math.inf > 1,
        5 // 2.0,
        2**-1,
        True + 1,
        ~5,
        5 & 3,
        5 ^ 1,
        1 << 3,
    )


@pytest.mark.parametrize("program", programs(globals()))
def test_like_eager(program: Callable[..., Any]) -> None:
    def make() -> tuple[torch.Tensor]:
        global COUNT
        COUNT = 0
        HITS.clear()
        random.seed(5)
        return one()

    resumes(program, make)


@pytest.mark.parametrize("program", [rand_module, rand_seed])
def test_the_process_goes_on_with_the_same_numbers(program: Callable[..., Any]) -> None:
    mine, _ = compiled(program)
    for _ in range(2):
        after = []
        for fn in (program, mine):
            random.seed(5)
            fn(*one())
            after.append(random.random())
        assert after[0] == after[1]


@pytest.mark.parametrize(
    "program, make, state",
    [
        (bytearray_arg, lambda: bytearray(b"abc"), bytes),
        (memoryview_arg, lambda: memoryview(b"hello"), bytes),
        (rand_arg, lambda: random.Random(4), random.Random.random),
    ],
)
def test_objects_of_the_caller(program: Callable[..., Any], make: Callable[[], Any], state: Any) -> None:
    mine, _ = compiled(program)
    for _ in range(2):
        theirs, ours = make(), make()
        assert difference(program(*one(), theirs), mine(*one(), ours)) <= 1e-6
        assert state(theirs) == state(ours)
