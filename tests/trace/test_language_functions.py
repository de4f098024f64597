"""Functions, closures, variables and decorators: each program gives in one graph what it gives in eager.

PYTEST_DONT_REWRITE: what `assert` compiles to is one of the things that are tested.
"""

# ruff: noqa: B006, B007, B023, C400, C405, C406, C408, C416, E731, F401
# ruff: noqa: F821, PLC0415, RUF017, SIM223, UP031 - it is what is tested

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support.tracing import check, programs, trace

X = torch.linspace(-1.0, 1.0, 6).reshape(2, 3)
COUNT = 0


def closure_over_argument(t):
    def inner(y):
        return y + t

    return inner(t * 2)


def closure_over_loop_variable(t):
    makers = []
    for i in range(3):
        makers.append(lambda v: v + i)
    return [make(t) for make in makers]


def closure_of_closure(t):
    def outer(a):
        def middle(b):
            def inner(c):
                return a + b * c + t

            return inner

        return middle

    return outer(1)(2)(3)


def nonlocal_write(t):
    total = 0

    def add(v):
        nonlocal total
        total += v
        return total

    add(1)
    add(t)
    return total


def nonlocal_delete(t):
    value = 1

    def drop():
        nonlocal value
        del value

    drop()
    try:
        return value
    except NameError as error:
        return t, type(error).__name__


def cell_of_argument(t):
    def bump():
        nonlocal t
        t = t + 1

    bump()
    bump()
    return t


def defaults(t):
    def fn(a, b=2, *, c=3, d):
        return a * b + c - d

    return fn(t, d=1), fn(t, 4, c=5, d=6), fn.__defaults__, fn.__kwdefaults__


def default_is_evaluated_once(t):
    def fn(v, seen=[]):
        seen.append(v)
        return len(seen)

    return fn(1), fn(2), t + fn(3)


def positional_only(t):
    def fn(a, b, /, c):
        return a + b * c

    try:
        fn(a=t, b=1, c=2)
    except TypeError:
        return fn(t, 1, c=2)


def star_arguments(t):
    def fn(*args, **kwargs):
        return sum(args), sorted(kwargs), list(kwargs.values())

    args, kwargs = [t, 1], {"k": 1, "j": t}
    return fn(*args, *[2], **kwargs, **{"z": 3})


def star_of_iterator(t):
    return max(*iter([1, 2, 3])), (lambda *a: a)(*range(2), *"ab", *{"k": 1}), t


def wrong_calls(t):
    def fn(a, b=1, *, c=2):
        return a

    seen = []
    for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"d": 1}), ((1,), {"a": 1})):
        try:
            fn(*args, **kwargs)
        except TypeError:
            seen.append("TypeError")
    return t, seen


def lambdas(t):
    return (lambda a, b=2, *c, **d: a * b + len(c) + len(d))(t, 3, 4, k=5)


def lambda_in_a_dict(t):
    table = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b}
    return table["add"](t, 1), table["mul"](t, 2)


def immediately_sorted_by(t):
    return sorted(["bb", "a", "ccc"], key=lambda s: -len(s)), t


def decorator(t):
    def twice(fn):
        def wrapper(*args, **kwargs):
            return fn(*args, **kwargs) * 2

        return wrapper

    @twice
    def add(a, b):
        return a + b

    return add(t, b=1)


def decorator_with_arguments(t):
    def scaled(by):
        def decorate(fn):
            @functools.wraps(fn)
            def wrapper(v):
                return fn(v) * by

            return wrapper

        return decorate

    @scaled(3)
    def inc(v):
        """Adds one."""
        return v + 1

    return inc(t), inc.__name__, inc.__doc__, inc.__wrapped__(t)


def decorator_class(t):
    return doubled_increment(t), doubled_increment.calls_so_far() >= 0


class Doubled:
    def __init__(self, fn: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.calls = 0

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args) * 2

    def calls_so_far(self) -> int:
        return self.calls


def decorator_object_made_here(t):
    def inner(v):
        """Adds one."""
        return v + 1

    inner.tag = 5
    doubled, named = Doubled(inner), functools.update_wrapper(Doubled(inner), doubled_increment.fn, updated=())
    facts = doubled.tag, doubled.__name__, doubled.__doc__, doubled.__wrapped__ is inner
    return doubled(t), facts, named.__name__, named.tag, sorted(vars(named))


@Doubled
def doubled_increment(v: Any) -> Any:
    return v + 1


def recursion(t):
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return t * fib(7)


def mutual_recursion(t):
    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    return t * even(6), odd(6)


def recursion_over_containers(t):
    def fold(nest):
        if isinstance(nest, dict):
            return {k: fold(v) for k, v in nest.items()}
        if isinstance(nest, (list, tuple)):
            return type(nest)(fold(v) for v in nest)
        return nest * 2

    return fold({"a": [t, (1, t)], "b": ()})


def function_attributes(t):
    def fn(v):
        fn.calls += 1
        return v * fn.calls

    fn.calls = 1
    return fn(t), fn.calls, hasattr(fn, "other"), getattr(fn, "other", 3), fn.__dict__ == {"calls": 2}


def function_names(t):
    def named(a, b):
        """Doc."""

    named.__name__ = "renamed"
    return t, named.__name__, named.__doc__, named.__module__ == __name__, named.__code__.co_argcount


def methods_as_values(t):
    items = []
    put = items.append
    put(1)
    add = t.add
    join = ",".join
    return add(1), items, join(["a", "b"])


def walrus(t):
    if (n := t.size(0)) > 1:
        values = [y := n, y**2]
        return t * n, values, y
    return None


def conditional_expressions(t):
    a = None
    return t if a is None else -t, 1 if not t.dim() else 2, (a or 3), (0 and a), ("" or [] or {})


def chained_comparison(t):
    n = 5
    return 1 < n <= 5 != 6, 1 < n < 3, t if 0 < n > 2 else -t


def assertions(t):
    assert t.dim() == 2
    assert isinstance(t, torch.Tensor), "a tensor"
    try:
        assert t.dim() == 3, f"not {t.dim()}"
    except AssertionError as error:
        return t, str(error)


def deletes(t):
    a, b, c = 1, [1, 2, 3, 4], {"k": 1, "j": 2}
    del a
    del b[0], b[1:]
    del c["k"]
    try:
        a
    except UnboundLocalError as error:
        return t, b, c, type(error) is UnboundLocalError


def text_of_things(t):
    n, name, pi = 3, "x", 3.14159
    return (
        f"{n:>4}|{name!r:<5}|{pi:.2f}|{n=}|{name:^{n}}|{{}}|{t.shape}|{t.dtype}",
        "%s %5.1f %r %%" % (name, pi, name),
        "{0} {a[k]} {1.real}".format(1, 2, a={"k": "v"}),
        str([1, "a", None]), repr((1,)), str({"a": 1.5}), repr({1}), str(range(3)), str(slice(1, 2)), f"{[1, 2]}", f"{True}",
    )  # fmt: skip


def global_read(t):
    return t + COUNT


def builtin_shadowed(t):
    len = lambda v: 7
    return t * len(t)


def unpacking(t):
    (a, b), *c, d = [(1, 2), 3, 4, 5]
    e, *f = "xyz"
    *g, h = {"k": 1, "j": 2}
    [i, [j]] = 1, [t]
    return a, b, c, d, e, f, g, h, i, j


def unpacking_errors(t):
    seen = []
    for value in ([1], [1, 2, 3], 5):
        try:
            a, b = value
        except (ValueError, TypeError) as error:
            seen.append((type(error).__name__, str(error)))
    return t, seen


def swaps(t):
    a, b, c = 1, 2, t
    a, b = b, a
    a, b, c = c, a, b
    return a, b, c


def augmented(t):
    n = 7
    n += 1
    n -= 2
    n *= 3
    n //= 2
    n **= 2
    n %= 50
    n <<= 2
    n >>= 1
    n |= 1
    n &= 0xFF
    n ^= 3
    v = t.clone()
    v += 1
    v /= 2
    items = [1]
    items += (2,)
    items *= 2
    pair = (1,)
    pair += (2,)
    word = "a"
    word += "b"
    return n, v, items, pair, word


def loops_with_else(t):
    log = []
    for i in range(3):
        if i == 5:
            break
    else:
        log.append("else")
    while True:
        log.append("while")
        break
    else:
        log.append("never")
    for i in []:
        pass
    return t, log, i


def nested_loops(t):
    found = []
    for i in range(4):
        for j in range(i):
            if j == 2:
                break
            if (i + j) % 2:
                continue
            found.append((i, j))
    return t + len(found), found


def comprehensions(t):
    k = 2
    return (
        [t * i for i in range(3) if i != 1], {i: i * k for i in range(3)}, sorted({i % 2 for i in range(5)}),
        list(i + k for i in range(3)), [[i + j for j in range(i)] for i in range(3)],
        [a + b for a, b in zip([1, 2], [3, 4])], [(i, j) for i in range(2) for j in range(2) if i != j],
        {k: v for k, v in {"a": 1}.items()},
    )  # fmt: skip


def comprehension_scopes(t):
    i = 10
    inner = [lambda: i for i in range(3)]
    return i, [f() for f in inner], [y := j for j in range(3)], y, t


def imports(t):
    import math
    import os.path
    from collections import OrderedDict as ordered

    import torch.nn.functional as functional
    from torch import nn, relu

    return functional.gelu(t) * math.pi, relu(t), ordered(a=1), nn.ReLU is not None, os.path.basename("a/b")


def import_of_what_is_not_there(t):
    try:
        import no_such_module_at_all
    except ImportError:
        return t + 1


def callable_objects(t):
    return callable(len), callable(t.add), callable(3), callable(lambda: 1), callable(Doubled), t


def local_and_global_names(t):
    return t, sorted(k for k in locals() if k != "k"), "X" in globals(), globals()["COUNT"]


def type_annotations_inside(t):
    n: int = 3
    m: list[int]
    m = [n]
    return t * n, m


def keyword_names_in_order(t):
    def fn(**kwargs):
        return list(kwargs)

    return fn(b=1, a=2), fn(**{"z": 1}, y=2), t


def builtin_functions(t):
    return (
        abs(-2.5), all([1, 0]), any([0, 1]), ascii("é"), bin(7), chr(97), divmod(-7, 2), format(3.14159, ".3f"), hex(255),
        isinstance(True, int), issubclass(bool, (str, int)), max([1, 5, 2], key=lambda v: -v), max(1, 2.5), min("b", "a"),
        max([], default=3), oct(8), ord("a"), pow(2, 10, 1000), round(2.5), round(-1.25, 1), sum([0.5, 1]), sum([[1], [2]], []),
        sorted([3, 1, 2]), tuple("ab"), list(zip("ab", [1, 2], strict=True)), list(enumerate("ab", 5)), list(reversed("abc")),
        hash(3) == hash(3.0), int.__name__, int("ff", 16), float("inf"), complex(1, 2), bool("x"), bytes([1, 2]), str(b"a", "ascii"),
        list(map(str, [1, 2])), dict(a=1, b=2), dict([("k", 1)]), set([1, 1]), frozenset([1]) == {1}, iter([1]).__next__(), t,
        int.from_bytes(b"\x01\x02", "big"), (255).to_bytes(2, "little"), (5).bit_length(), (2.5).is_integer(), float.fromhex("0x1p-1"),
    )  # fmt: skip


NOT_YET: dict[str, str] = {}


@pytest.mark.parametrize("program", programs(globals(), NOT_YET))
def test_like_eager(program: Callable[..., Any]) -> None:
    check(program, X)


def test_global_writes() -> None:
    def fn(t):
        global COUNT, FRESH
        COUNT += 1
        COUNT += 1
        FRESH = t * COUNT
        value = FRESH
        del FRESH
        return value

    before = COUNT
    traced = trace(fn, X)
    assert before == COUNT
    assert torch.equal(traced.run(X), X * (before + 2))
    assert before + 2 == COUNT
    assert "FRESH" not in globals()


def test_nonlocal_writes_of_the_caller() -> None:
    count, held = 0, None

    def fn(t):
        nonlocal count, held
        count += 3
        held = t * count
        return held + 1

    out = trace(fn, X).run(X)
    assert count == 3
    assert torch.equal(held, X * 3)
    assert torch.equal(out, X * 3 + 1)


def test_returned_functions() -> None:
    def fn(t):
        scale = t * 2

        def inner(v, by=3, *, bias: float = 1.0):
            """Scales."""
            return v * scale * by + bias

        inner.tag = "x"
        return inner, functools.partial(inner, by=2), lambda v=scale: v

    inner, part, lam = trace(fn, X).run(X)
    assert torch.equal(inner(X), X * X * 2 * 3 + 1)
    assert torch.equal(part(X), X * X * 2 * 2 + 1)
    assert torch.equal(lam(), X * 2)
    assert (inner.tag, inner.__name__, inner.__doc__) == ("x", "inner", "Scales.")
    assert inner.__annotations__ == {"bias": "float"}


def test_the_dict_of_a_function_is_live() -> None:
    def fn(t):
        def inner():
            pass

        inner.first = 1
        held = vars(inner)
        held["second"] = t
        inner.third = 3
        del inner.first
        inner.__dict__.update(fourth=4)
        facts = inner.second is t, inner.third, held is inner.__dict__, list(held), hasattr(inner, "first")
        return functools.wraps(inner)(lambda: held), held, inner, facts

    wrapped, held, inner, facts = trace(fn, X).run(X)
    assert facts == (True, 3, True, ["second", "third", "fourth"], False)
    assert held is vars(inner) and wrapped() is held
    assert list(vars(wrapped)) == [*held, "__wrapped__"] and wrapped.fourth == 4
