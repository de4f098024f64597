"""What the versions of Python compile in their own ways: comprehensions, cells, calls, loops, generators, `with`."""

# ruff: noqa: B023, C416 - plain comprehensions and late-bound variables are what is tested

from __future__ import annotations

import collections
import contextlib
import operator
import re
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from armature.trace import inlining
from armature.trace.bytecode.instructions import decode, slot_names
from armature.trace.callables import CLASS_ROWS
from armature.trace.errors import GraphBreak
from tests.support.tracing import check, trace

X = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)
Z = X + 5  # a global of the name that comprehensions below use


def closure_over_a_local(x):
    count = 1

    def bump():
        nonlocal count
        count += 1
        return count

    return x * bump() * bump(), count


def comprehension_hides_an_argument(x, i=7):
    rows = [i * x for i in range(3)]
    return rows, i


def comprehension_hides_a_local_that_is_unset(x):
    rows = [i for i in range(2)]
    try:
        return x * i, rows
    except NameError:
        i = 2
        return x - i, rows


def comprehension_hides_a_global(x):
    rows = [Z * x for Z in range(2)]
    return rows, Z * x


def comprehension_hides_a_cell(x, i=7):
    held = lambda: i  # noqa: E731
    rows = [i for i in range(3)]
    i += 1
    return x * i, rows, held()


def comprehension_of_closures(x, i=7):
    makers = [lambda: i for i in range(3)]
    return x * i, [make() for make in makers]


def comprehension_of_closures_hides_a_cell(x, i=7):
    held = lambda: i  # noqa: E731
    makers = [lambda: i for i in range(3)]
    i += 1
    return x * i, [make() for make in makers], held()


def comprehension_hides_a_free_variable(x):
    i = 7

    def inner(n):
        before = i
        rows = [i for i in range(n)]
        return before, rows, i, (lambda: i)()

    return x, inner(3), i


def closures_hide_a_free_variable(x):
    i = 7

    def inner(n):
        before = i
        makers = [lambda: i for i in range(n)]
        return before, [make() for make in makers], i

    return x, inner(3), i


def comprehension_that_raises(x, i=7):
    try:
        [i // j for i in range(3) for j in (1, 0)]
    except ZeroDivisionError:
        return x * i
    return x


def nested_comprehensions(x, i=7):
    table = [[i * j for j in range(i)] for i in range(4)]
    keyed = {i: {j for j in row} for i, row in enumerate(table)}
    return x * i, table, keyed


def comprehension_in_a_generator(x):
    def numbers(i):
        yield [i for i in range(i)]
        yield i

    return x, list(numbers(3))


def deleted_variable(x):
    y = x + 1
    del y
    try:
        return y  # noqa: F821
    except UnboundLocalError:
        return x - 1


def keywords_by_name(x):
    def helper(a, b=1, *rest, c=2, **named):
        return a * b * c * len(rest), sorted(named)

    options = {"c": 5}
    return helper(x), helper(x, b=3), helper(x, 2, 3, c=4, d=1), helper(*(x, 2), **options), helper(x, e=1, **options)


def defaults_and_annotations(x, scale=2):
    def helper(a: int, b: int = scale, *, c: int = scale + 1) -> int:
        return a * b * c * scale

    return helper(x), helper(x, 1), helper(x, c=1)


class Base:
    factor = 3

    def grow(self, x, by=1):
        return x * self.factor * by

    @property
    def half(self):
        return self.factor / 2


class Derived(Base):
    factor = 4

    def grow(self, x, by=2):
        return super().grow(x, by=by) + super().grow(x) + super().half

    @classmethod
    def make(cls):
        return super().__new__(cls)


def super_attributes(x):
    return Derived().grow(x), Derived.make().grow(x, 5)


def loops_that_end_early(x):
    seen = []
    for i in range(5):
        if i == 1:
            continue
        if i == 3:
            break
        seen.append(i)
    else:
        seen.append("never")
    for a, b in zip(range(3), "abc"):
        seen.append((a, b))
    else:
        seen.append("end")
    while len(seen) < 9:
        seen.append(len(seen))
    return x, seen


def returns_from_a_loop_in_with(x):
    with contextlib.nullcontext(x) as held:
        for i in range(3):
            with contextlib.suppress(ZeroDivisionError):
                if i == 2:
                    return held * i
                held = held / (i - i)
                held = 1 // (i - i)
    return x


def chained_generators(x):
    def inner(n):
        got = []
        for i in range(n):
            got.append((yield i))
        return got

    def outer():
        first = yield from inner(2)
        second = yield from [10, 11]
        return first, second

    steps = outer()
    seen = [next(steps)]
    for i in range(3):
        seen.append(steps.send(i) if i < 1 else next(steps))
    try:
        next(steps)
    except StopIteration as end:
        seen.append(end.value)
    return x, seen


def generator_that_raises_stop(x):
    def broken():
        yield 1
        raise StopIteration

    try:
        return list(broken())
    except RuntimeError as error:
        return x, str(error)


def texts_and_slices(x, n=3):
    items = list(range(10))
    items[1:n] = [0]
    return x[1:n], x[:, :-1], items[n:], f"{n} {n!r:>4} {n:03d} {'a' + 'b'!s}", items[::2]


def patterns(x, subject=("move", 3, {"far": 1})):
    match subject:
        case ("move", int(n), {"far": far, **rest}) if far:
            return x * n, rest
        case _:
            return x


def finally_in_order(x):
    log = []
    for i in range(3):
        try:
            log.append(i)
            if i == 1:
                continue
            log.append(1 // i)
        except ZeroDivisionError as error:
            log.append(type(error).__name__)
        else:
            log.append("else")
        finally:
            log.append("finally")
    return x, log


def both_bounds(x, low=1, high=3):
    return [i for i in range(5) if low < i <= high], x if low < high else -x, not x.shape or None, (low and high) or 0


CASES = [fn for fn in dict(globals()).values() if isinstance(fn, types.FunctionType) and fn.__module__ == __name__]


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_like_eager(fn: Callable[..., Any]) -> None:
    check(fn, X)


def test_two_slots_of_one_name() -> None:
    i = 7

    def inner(n: int) -> Any:
        return [i for i in range(n)], i

    names = slot_names(inner.__code__)
    if ".i" in (names or ()):  # Python inlines the comprehension
        assert names is not None and names[-1] == "i"
        found = {str(inst.argval) for inst in decode(inner.__code__) if inst.opname == "LOAD_FAST_AND_CLEAR"}
        assert found == {".i"}
    else:
        assert "i" not in inner.__code__.co_varnames
    assert slot_names(closure_over_a_local.__code__) is None


def test_a_program_deeper_than_python_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 counts calls through C apart: its limit may come before the tracer's own."""
    monkeypatch.setattr(inlining, "MAX_DEPTH", 10**6)

    def deep(x):
        return deep(x)

    with pytest.raises(GraphBreak) as stop:
        trace(deep, X)
    assert stop.value.event.type.id == "recursion-depth"
    assert [line.function for line in stop.value.event.stack] == ["deep"]


@pytest.mark.parametrize("cls", [collections.deque, operator.itemgetter, re.Pattern], ids=lambda cls: cls.__name__)
def test_classes_written_in_c_are_told_by_their_rule(cls: type) -> None:
    """On the heap or not, which differs between versions."""
    assert next(name for name, fits, _ in CLASS_ROWS if fits(cls)) == "written in C"


def test_classes_of_the_program_are_not() -> None:
    assert next(name for name, fits, _ in CLASS_ROWS if fits(Derived)) == "class"
