"""Iterators and generators that come from the caller or go to it: both sides see what was taken, as in eager mode."""

# ruff: noqa: C417 - it is what is tested

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature.testing.differential import difference
from tests.support.resuming import compiled, resumes


def one() -> tuple[torch.Tensor]:
    return (torch.linspace(-1.0, 1.0, 6).reshape(2, 3),)


def it_next(t, a):
    return t + next(a)


def it_for(t, a):
    for x in a:
        t = t + x
        if x == 2:
            break
    return t


def gen_arg_side(t, a):
    t = t * 2
    s = sum(a)
    return t + s


def enum_arg(t, a):
    i, x = next(a)
    return t + i + x


def zip_arg(t, a):
    i, x = next(a)
    j, y = next(a)
    return t + i + x + y


def map_arg(t, a):
    return t + next(a)


def count_arg(t, a):
    return t + next(a) + next(a)


def cycle_arg(t, a):
    return t + next(a) + next(a)


def file_arg(t, a):
    for line in a:
        t = t + len(line)
    return t


def dict_iter_arg(t, a):
    return t + len(next(a))


def _mk():
    def g():
        for i in range(3):
            print("g", i)
            yield i

    return g()


ARGUMENTS = [
    (it_next, lambda: iter([1, 2, 3])),
    (it_for, lambda: iter([1, 2, 3, 4])),
    (it_for, lambda: (i for i in range(6))),
    (gen_arg_side, _mk),
    (enum_arg, lambda: enumerate([5, 6, 7], 3)),
    (zip_arg, lambda: zip([5, 6, 7], range(9))),
    (map_arg, lambda: map(lambda v: v * 2, [5, 6, 7])),
    (count_arg, lambda: itertools.islice(itertools.count(4), 9)),
    (cycle_arg, lambda: itertools.islice(itertools.cycle([1, 2, 3]), 9)),
    (file_arg, lambda: io.StringIO("a\nbb\nccc\n")),
    (dict_iter_arg, lambda: iter({"a": 1, "bb": 2})),
]


@pytest.mark.parametrize("program, make", ARGUMENTS)
def test_of_the_caller(
    program: Callable[..., Any], make: Callable[[], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    mine, _ = compiled(program)
    for _ in range(2):
        theirs, ours = make(), make()
        expected = program(*one(), theirs)
        printed = capsys.readouterr().out
        assert difference(expected, mine(*one(), ours)) <= 1e-6
        assert capsys.readouterr().out == printed
        assert list(theirs) == list(ours)


def listed(t, a):
    t = t * 2
    items = list(a)
    return t + sum(items)


def test_a_generator_of_the_caller_is_left_to_python_with_one_break() -> None:
    explanation = armature.explain(listed)(*one(), (i for i in range(3)))
    assert [event.type.id for event in explanation.breaks] == ["drives-generator"]
    mine = armature.compile(listed)
    for count in (3, 4):  # of any length, and with the same code
        torch.testing.assert_close(mine(*one(), (i for i in range(count))), listed(*one(), iter(range(count))))


def returns_gen(t):
    t = t * 2

    def g():
        yield t
        yield t + 1

    return g()


def returns_gen_advanced(t):
    t = t * 2

    def g():
        yield 1
        yield t
        yield t + 1

    it = g()
    next(it)
    return it


def returns_genexp(t):
    t = t * 2
    return (t + i for i in range(3))


def returns_enum(t):
    t = t * 2
    e = enumerate([t, t + 1])
    next(e)
    return e


def returns_map(t):
    t = t * 2
    return map(lambda v: v + t, [1, 2])


def returns_list_iter(t):
    t = t * 2
    items = [t, 1, 2]
    it = iter(items)
    next(it)
    items.append(5)
    return it


def returns_filter(t):
    t = t * 2
    return filter(lambda v: v > 1, [1, 2, 3])


def returns_gen_of_arguments(t, n=3):
    t = t * 2

    def g(a, *rest, k=1, **kw):
        yield t + a
        yield rest, k, kw
        yield n

    return g(1, 2, 3, k=5, z=6)


MADE = [
    returns_gen, returns_genexp, returns_enum, returns_map, returns_list_iter, returns_filter, returns_gen_of_arguments,
]  # fmt: skip


@pytest.mark.parametrize("program", [*MADE, returns_gen_advanced])
def test_returned(program: Callable[..., Any]) -> None:
    mine, records = compiled(program)
    for _ in range(2):
        theirs, ours = program(*one()), mine(*one())
        assert type(theirs) is type(ours)
        assert getattr(theirs, "__qualname__", "") == getattr(ours, "__qualname__", "")
        assert difference(list(theirs), list(ours)) <= 1e-6
    assert program is returns_gen_advanced or not any(record.breaks for record in records.compilations)


def genexp_over_a_list_that_grows(t):
    items = [1, 2]
    made = (t + i for i in items)
    print(len(items))
    items.append(3)
    return list(made)


def across(t):
    def g():
        print("start")
        yield t
        yield t + 1

    it = g()
    t = t * 3
    print("mid")
    return [x + 1 for x in it]


def same(t):
    def g():
        yield t

    a = g()
    print("x")
    b = a
    return a is b, next(a), next(b, 5)


def gen_across_break(t):
    def g():
        for i in range(4):
            yield t + i

    it = g()
    a = next(it)
    print("mid")
    return a, next(it), list(it)


def gen_send_across_break(t):
    log = []

    def g():
        total = t
        while True:
            try:
                got = yield total
            except ValueError as e:
                log.append(str(e))
                got = 100
            except GeneratorExit:
                log.append("exit")
                raise
            total = total + got

    it = g()
    next(it)
    a = it.send(1)
    print("one")
    b = it.throw(ValueError("v"))
    print("two")
    it.close()
    print("three", log)
    return a, b, log


@pytest.mark.parametrize(
    "program", [genexp_over_a_list_that_grows, across, same, gen_across_break, gen_send_across_break]
)
def test_across_breaks(program: Callable[..., Any]) -> None:
    resumes(program, one)
