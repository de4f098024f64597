"""Generators and iterators that the frame consumes itself."""

# ruff: noqa: C400, C417 - it is what is tested

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from tests.support.tracing import check, programs, trace

X = torch.linspace(-1.0, 1.0, 6).reshape(2, 3)


def loops_over(t):
    def rows():
        for row in t:
            yield row * 2

    return [row + 1 for row in rows()]


def yield_from(t):
    def inner():
        got = yield 1
        yield got
        return t

    def outer():
        result = yield from inner()
        yield result
        yield from [7, 8]
        yield from (i for i in range(2))

    gen = outer()
    return next(gen), gen.send("sent"), list(gen)


def sends(t):
    def average():
        total, count, value = 0, 0, None
        while True:
            value = yield value
            total, count = total + value, count + 1
            value = total / count

    gen = average()
    next(gen)
    return gen.send(t), gen.send(t * 3), gen.send(1)


def closes(t):
    log = []

    def numbers():
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")

    gen = numbers()
    first = next(gen)
    gen.close()
    return t + first, log, list(gen)


def close_of_delegating(t):
    log = []

    def inner():
        try:
            yield t
        except GeneratorExit:
            log.append("inner")
            raise
        finally:
            log.append("finally")

    def outer():
        try:
            yield from inner()
        finally:
            log.append("outer")

    gen = outer()
    value = next(gen)
    gen.close()
    return value, log


def throws(t):
    def guarded():
        while True:
            try:
                value = yield t
            except ValueError as error:
                yield str(error)
            else:
                yield value

    gen = guarded()
    next(gen)
    first = gen.throw(ValueError("thrown"))
    next(gen)
    return first, gen.send(5)


def throw_into_delegating(t):
    def inner():
        try:
            yield 1
        except KeyError:
            yield t

    def outer():
        yield from inner()
        yield "after"

    gen = outer()
    next(gen)
    return gen.throw(KeyError("k")), next(gen)


def throw_that_is_not_caught(t):
    def plain():
        yield 1
        yield 2

    gen = plain()
    next(gen)
    try:
        gen.throw(KeyError, "x")
    except KeyError as error:
        return t, error.args, list(gen)


def return_value(t):
    def fn():
        yield 1
        return t * 2

    gen = fn()
    next(gen)
    try:
        next(gen)
    except StopIteration as stop:
        return stop.value


def stop_iteration_inside(t):
    def fn():
        yield 1
        raise StopIteration

    try:
        return list(fn())
    except RuntimeError as error:
        return t, str(error)


def generator_expressions(t):
    scale = 3
    return (
        sum(t * i * scale for i in range(3)),
        list(i for i in "ab"),
        any(i > 1 for i in [1, 2]),
        max(i * i for i in range(4)),
    )


def first_that_fits(t):
    return next((i for i in range(10) if i * i > 20), None), next(iter([]), t), next(iter({"a": 1}.items()))


def infinite(t):
    def naturals():
        n = 0
        while True:
            yield n
            n += 1

    found = []
    for n in naturals():
        if n > 3:
            break
        found.append(t * n)
    return found


def zipped(t):
    def letters():
        yield from "abc"

    return list(zip(letters(), [1, 2, 3], t.unbind(1))), dict(zip(letters(), range(3))), list(enumerate(letters()))


def unpacked(t):
    def pair():
        yield t
        yield t + 1

    a, b = pair()
    return a * b, [*pair()], (lambda x, y: x - y)(*pair())


def recursive(t):
    def flatten(nest):
        for item in nest:
            if isinstance(item, list):
                yield from flatten(item)
            else:
                yield item

    return list(flatten([t, [1, [2, [3]]], []]))


def pipeline(t):
    def source():
        yield from range(5)

    def squares(items):
        for item in items:
            yield item * item

    def even(items):
        return (item for item in items if item % 2 == 0)

    return t * sum(even(squares(source())))


def as_context_manager(t):
    log = []

    @contextlib.contextmanager
    def section(name):
        log.append("+" + name)
        try:
            yield name.upper()
        finally:
            log.append("-" + name)

    with section("a") as a, section("b") as b:
        log.append(a + b)
    return t, log


def iterator_class(t):
    return [t * i for i in Countdown(3)], list(Countdown(2)), 2 in Countdown(3), sum(Countdown(4)), tuple(Sequence())


class Countdown:
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Countdown:
        return self

    def __next__(self) -> int:
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Sequence:
    def __getitem__(self, i: int) -> int:
        if i > 2:
            raise IndexError
        return i * i


class Lazy:
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Any:
        for item in self.items:
            yield item * 2


def generator_method(t):
    return [v + 1 for v in Lazy([t, 2])], list(Lazy([1])), max(Lazy([1, 5, 2]))


def iterator_functions(t):
    it = iter([1, 2, 3, 4])
    first = next(it)
    mapped = map(lambda v: v * 2, it)
    second = next(mapped)
    count = iter(lambda state=[0]: state.append(1) or len(state), 4)
    return t, first, second, list(mapped), next(it, "end"), list(count), list(filter(None, [0, 1, 2]))


def iterators_share_their_source(t):
    it = iter(range(6))
    return list(zip(it, it)), [t], [*zip(*[iter([1, 2, 3, 4])] * 2)]


def changes_while_iterating(t):
    items = [1, 2]
    for item in items:
        if len(items) < 5:
            items.append(item * 2)
    table = {"a": 1}
    try:
        for key in table:
            table[key + "x"] = 1
    except RuntimeError as error:
        return t, items, str(error)


def generators_are_dropped_half_way(t):
    def numbers():
        try:
            yield 1
        except (IndexError, KeyError):
            yield 2

    def chained():
        yield from numbers()

    return t + next(numbers()) + next(chained()), any(number == 1 for number in chained())


NOT_YET: dict[str, str] = {}


@pytest.mark.parametrize("program", programs(globals(), NOT_YET))
def test_like_eager(program: Callable[..., Any]) -> None:
    check(program, X)


class Hearing:
    """An iterator that gets to know what becomes of the generator that stands in it."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __iter__(self) -> Hearing:
        return self

    def __next__(self) -> int:
        self.log.append("next")
        return len(self.log)

    def send(self, value: Any) -> int:
        self.log.append(value)
        return len(self.log)

    def close(self) -> None:
        self.log.append("closed")


def drops_a_delegate(t, log):
    def outer():
        yield from Hearing(log)

    return t + next(outer()), len(log) > 0


def sends_to_a_delegate(t, log):
    def outer():
        yield from Hearing(log)

    gen = outer()
    return t + next(gen) + gen.send(5), list(log)


def sends_to_a_list(t, log):
    def outer():
        try:
            yield from [1, 2, 3]
        except AttributeError as error:
            log.append(str(error))
            yield 7

    gen = outer()
    return t + next(gen) + gen.send(5), list(log)


@pytest.mark.parametrize("fn", [drops_a_delegate, sends_to_a_delegate, sends_to_a_list], ids=lambda fn: fn.__name__)
def test_iterators_that_hear_of_their_generator(fn: Callable[..., Any]) -> None:
    """What is sent to a generator, and that it ends, is handed on to what it stands in: run eagerly.

    A generator that is in a variable at a graph break lives longer than in eager mode, so its end is looked at last.
    """
    mine: list[Any] = []
    theirs: list[Any] = []
    out, eager = armature.compile(fn, backend="eager")(X, mine), fn(X, theirs)
    assert torch.equal(out[0], eager[0])
    assert out[1] == eager[1]
    gc.collect()
    assert mine == theirs


def test_iterator_of_the_caller() -> None:
    def fn(t, it):
        return t + next(it), list(it)

    mine, theirs = iter([1, 2, 3]), iter([1, 2, 3])
    out, eager = trace(fn, X, mine).run(X, mine), fn(X, theirs)
    assert torch.equal(out[0], eager[0])
    assert out[1] == eager[1] == [2, 3]
    assert list(mine) == list(theirs) == []


def test_returned_iterator() -> None:
    def fn(t):
        return iter([t, t + 1]), zip([1], [2]), (v for v in [1, 2])

    listed, zipped_, gen = trace(fn, X).run(X)
    assert torch.equal(next(listed), X)
    assert list(zipped_) == [(1, 2)]
    assert list(gen) == [1, 2]


def test_what_a_generator_refuses() -> None:
    def counts():
        while True:
            yield 1

    def throws_into_itself():
        try:
            made[0].throw(KeyError("mine"))
        except ValueError as error:
            yield str(error)

    made: list[Any] = []

    def fn(t):
        waiting = counts()
        try:
            waiting.send(t)
        except TypeError as error:
            found = [str(error), next(waiting)]
        made[:] = [throws_into_itself()]
        return t + 1, found, next(made[0])

    out, eager = armature.compile(fn, backend="eager")(X), fn(X)
    assert out[1:] == eager[1:]
