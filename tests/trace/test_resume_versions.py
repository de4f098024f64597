"""Breaks in code that the versions of Python compile in their own ways: instructions for two variables, comprehensions."""

# ruff: noqa: B023 - late-bound variables are what is tested

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.resuming import compare, compiled, resumes, run


def x() -> torch.Tensor:
    return torch.linspace(-1.0, 1.0, 6).reshape(2, 3)


def one() -> tuple[torch.Tensor]:
    return (x(),)


def many_slots(t):
    a = b = c = d = e = f = t
    held = (a + b, c, d, e, f, a, b, c, d, print("many on the stack"), e, f)
    g, h, i, j = t * 2, t * 3, t * 4, t * 5
    k, m = g - h, i - j
    return held, k - m, h - g, j - i, g - m, k - h, [k, m, i, j]


def test_variables_in_other_slots_than_before() -> None:
    """Python 3.13 has instructions for two variables of the first sixteen slots."""
    assert resumes(many_slots, one).eager == []


def comprehension_that_makes_cells(t, n=2):
    scale = t + 1
    print("before")
    makers = [lambda: i * scale for i in range(n)]
    print("after")
    return [make() for make in makers]


def break_before_a_comprehension_that_makes_cells(t):
    print("before", t.shape)
    return [sum(v * w for v in range(2)) for w in (t, t + 1)]


def break_inside_of_it(t):
    makers = [(lambda: i, print("inside", i)) for i in range(3)]
    return t * 2, [make() for make, _ in makers]


def break_while_the_cell_is_read(t):
    makers = [(print("inside"), i, lambda: i, t + i) for i in range(3)]
    return t * 2, [make() + i for _, i, make, _ in makers]


def hides_a_cell(t, i=7):
    held = lambda: i  # noqa: E731
    print(held())
    makers = [(lambda: i, print("inside", i))[0] for i in range(3)]
    i += 1
    print("after", held(), i)
    return t * i, [make() for make in makers], held()


def hides_a_cell_without_value(t):
    held = lambda: i  # noqa: E731
    makers = [(lambda: i, print("inside", i))[0] for i in range(2)]
    try:
        return t, held()
    except NameError as error:
        print(error)
    i = t + 3
    print("set")
    return t * i, [make() for make in makers], held()


def two_of_them(t):
    pairs = [[(lambda: (i, j), print(i, j))[0] for j in range(i)] for i in range(3)]
    print("done")
    return t + 1, [make() for row in pairs for make in row]


def changes_after_it_is_captured(t):
    makers = [((f := lambda: i), print("inside"), f())[0] for i in range(3)]
    return t, [make() for make in makers], f()


def in_a_helper(t):
    def helper(t, k):
        makers = [(lambda: k * i, print("inside", i, k))[0] for i in range(2)]
        k = k + 1
        print("helper")
        return [make() * t for make in makers]

    return helper(t * 2, 3), helper(t + 1, 4)


def in_a_loop(t):
    found = []
    for k in range(3):
        found.append([(lambda: k + i, print("inside", i, k))[0] for i in range(2)])
        t = t + k
        print("loop", k)
    return t, [make() for row in found for make in row]


def raises_inside(t):
    i = t + 1
    try:
        [(lambda: i, print("inside", i), 1 // (1 - i)) for i in range(3)]
    except ZeroDivisionError as error:
        print(error, i.shape)
    print("after")
    return i * 2


def hides_a_cell_without_making_one(t, i=7):
    held = lambda: i  # noqa: E731
    print("before", held())
    rows = [i * t for i in range(3)]
    print("after", held())
    i += 1
    return rows, held(), i


def breaks_where_a_cell_is_hidden(t, i=7):
    held = lambda: i  # noqa: E731
    rows = [(print("inside", i), i * t)[1] for i in range(3)]
    i += 1
    return rows, held(), i


CELLS = [
    comprehension_that_makes_cells, break_before_a_comprehension_that_makes_cells, break_inside_of_it,
    break_while_the_cell_is_read, hides_a_cell, hides_a_cell_without_value, two_of_them, changes_after_it_is_captured,
    in_a_helper, in_a_loop, raises_inside, hides_a_cell_without_making_one,
]  # fmt: skip


@pytest.mark.parametrize("fn", CELLS, ids=lambda fn: fn.__name__)
def test_comprehensions_that_make_cells(fn: Any) -> None:
    assert resumes(fn, one).eager == []


def test_a_break_where_a_cell_is_hidden() -> None:
    resumes(breaks_where_a_cell_is_hidden, one)


def test_the_cell_that_is_hidden_is_read_anew() -> None:
    mine, _ = compiled(hides_a_cell)
    for i in (7, 8, 2.5, 7):
        expected, found = run(hides_a_cell, __file__, (x(), i)), run(mine, __file__, (x(), i))
        compare(expected, found)


class Wary:
    def __init__(self, value: int) -> None:
        if value:
            raise ValueError("none wanted")


def constructor_raises_first_in_its_region(t):
    y = t + 1
    try:
        Wary(1)
    finally:
        print(y.shape, unknown)  # noqa: F821


def test_the_handler_of_a_constructor_that_python_has_specialised() -> None:
    """Python 3.13 runs `__init__` in the same loop from the second call on."""
    resumes(constructor_raises_first_in_its_region, one, calls=4)
