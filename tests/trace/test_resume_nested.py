"""A break in a function that is inlined is taken there: its caller keeps its graph."""

from __future__ import annotations

import functools
import sys
import traceback
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import armature
from tests.support.resuming import compiled, resumes

SCALE = 3.0


def x() -> torch.Tensor:
    return torch.linspace(-1.0, 1.0, 6).reshape(2, 3)


def one() -> tuple[torch.Tensor]:
    return (x(),)


def helper(t, by=2.0):
    y = t * by
    print("helper", tuple(y.shape))
    return y + SCALE


def says(t):
    print("hello")


def calls_a_helper(t):
    a = t.sin()
    b = helper(a, by=3.0)
    return b.cos() + a


def calls_it_in_an_expression(t):
    return [t + 1, helper(t) * helper(t, 3), t.sum()]


def calls_one_that_only_prints(t):
    a = t + 1
    says(a)
    return a * 2


def middle(t, n):
    u = helper(t + n)
    return u * n


def three_deep(t):
    a = t + 1
    b = middle(a, 2)
    return a + b


def branches(t):
    if t.sum() > 0:
        return t * 2
    return t * 3


def calls_one_that_branches(t):
    return branches(t + 1) + branches(t - 1)


def in_a_loop(t):
    for i in range(3):
        t = helper(t, i)
        t = t + 1
    return t


def loops(t):
    for name in ("a", "b"):
        t = t + 1
        print(name)
    return t


def calls_a_loop(t):
    return loops(t * 2) * 3


def closure(t):
    total = 0

    def add(v):
        nonlocal total
        total += 1
        print("add", total)
        total += 1
        return v + total

    a = add(t)
    b = add(a)
    return a * b, total


def changes_arguments(t, items, box):
    def put(v):
        items.append(v)
        box["n"] = len(items)
        print(len(items))
        items.append(v + 1)
        return len(items)

    n = put(t)
    box["after"] = n
    return t * n


def star(*args, **kwargs):
    total = sum(args)
    print(sorted(kwargs))
    return total * kwargs["by"]


def calls_with_stars(t):
    args, kwargs = (t, t + 1), {"by": 2, "other": 1}
    return star(*args, **kwargs) + 1


def recursive(t, n):
    if n == 0:
        print("bottom")
        return t
    return recursive(t + n, n - 1) * 2


def recursion(t):
    return recursive(t, 3) + 1


def decorated_by(fn):
    @functools.wraps(fn)
    def inner(*args):
        return fn(*args) + 1

    return inner


@decorated_by
def decorated(t):
    y = t * 2
    print("decorated")
    return y * 2


def calls_decorated(t):
    return decorated(t + 1) * 2


@torch.no_grad()
def without_grad(t):
    y = t * 2
    print("grad", torch.is_grad_enabled(), y.requires_grad)
    return y * 2


def calls_without_grad(t):
    a = t * 2
    b = without_grad(a)
    return a * b, torch.is_grad_enabled()


class Talker:
    def __init__(self, n):
        self.n = n

    def talk(self, t):
        y = t * self.n
        print("talk", self.n)
        self.n += 1
        return y + self.n

    def __call__(self, t):
        print("call", self.n)
        return t + self.n

    def __add__(self, t):
        print("add")
        return t + self.n

    @property
    def value(self):
        print("value")
        return self.n


class Louder(Talker):
    def talk(self, t):
        print("louder")
        return super().talk(t) * 2


def methods(t, talker):
    a = talker.talk(t + 1)
    return talker(a) * talker.talk(a)


def made_inside(t):
    talker = Louder(2)
    a = talker.talk(t)
    return a + talker.n, talker


def operators_and_properties(t, talker):
    return (talker + t * 2) * talker.value


def default_list(t, into=None):
    into = [] if into is None else into
    into.append(helper(t))
    return into


def comprehension(t):
    return [helper(t + i) for i in range(2)]


def prints_in_a_comprehension(t):
    found = [(print(i), t + i)[1] for i in range(3)]
    return found[0] + found[2]


def mapped(t):
    return sum(map(helper, [t, t + 1]))


def as_a_key(t):
    return sorted([3, 1, 2], key=lambda n: (print(n), -n)[1]), t + 1


def generator(t):
    def rows():
        for i in range(3):
            print("row", i)
            yield t + i

    total = 0
    for row in rows():
        total = total + row
    return total


def in_a_generators_loop(t):
    def rows():
        for i in range(3):
            yield t + i

    total = 0
    for row in rows():
        print("seen")
        total = total + row
    return total


class Scales:
    """An object that is called as a function is."""

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, t, *more, by=1.0):
        y = t * self.by
        print("scales", len(more))
        return y * by


def plainly(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(*args, **kwargs)

    return inner


class ScalesTwice(Scales):
    __call__ = plainly(Scales.__call__)


class Counts(nn.Module):
    """A module with a `__call__` of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def __call__(self, t, n=None):
        n = len(t) if n is None else n
        y = t + n
        print("counts")
        return super().__call__(y)

    def forward(self, t):
        return self.inner(t)


SCALES, SCALES_TWICE, COUNTS = Scales(2.0), ScalesTwice(3.0), Counts()


def calls_an_object(t):
    a = t.sin()
    return SCALES(a, 5, by=3.0) + a


def calls_one_made_here(t):
    return Scales(2.0)(t + 1) * 2


def calls_one_through_a_decorator(t):
    return SCALES_TWICE(t + 1) * 2


def calls_a_module_that_counts(t):
    return COUNTS(t * 2).relu()


CASES: list[tuple[Any, Any, int, int]] = [
    (calls_an_object, one, 3, 1),
    (calls_one_made_here, one, 3, 1),
    (calls_one_through_a_decorator, one, 3, 1),
    (calls_a_module_that_counts, one, 3, 1),
    (calls_a_helper, one, 3, 1),
    (calls_it_in_an_expression, one, 4, 2),
    (calls_one_that_only_prints, one, 2, 1),
    (three_deep, one, 4, 1),
    (calls_decorated, one, 4, 1),
    (calls_without_grad, one, 3, 1),
    (recursion, one, 3, 1),
    (calls_with_stars, one, 3, 1),
    (closure, one, 3, 2),
    (changes_arguments, lambda: (x(), [0], {}), 2, 1),
    (methods, lambda: (x(), Talker(2)), 6, 3),
    (made_inside, one, 4, 2),
]


@pytest.mark.parametrize(("fn", "make", "graphs", "breaks"), CASES, ids=lambda p: getattr(p, "__name__", ""))
def test_the_caller_keeps_its_graph(fn: Any, make: Any, graphs: int, breaks: int) -> None:
    found = resumes(fn, make, calls=1)
    assert found.eager == []
    assert (len(found.graphs), len(found.breaks)) == (graphs, breaks), (found.graphs, found.breaks)


@pytest.mark.parametrize(
    ("fn", "make"),
    [
        *((case[0], case[1]) for case in CASES),
        (in_a_loop, one),
        (calls_a_loop, one),
        (calls_one_that_branches, one),
        (operators_and_properties, lambda: (x(), Talker(2))),
        (default_list, one),
        (comprehension, one),
        (prints_in_a_comprehension, one),
        (mapped, one),
        (as_a_key, one),
        (generator, one),
        (in_a_generators_loop, one),
    ],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_helpers(fn: Any, make: Any) -> None:
    found = resumes(fn, make, calls=3)
    assert found.eager == []
    assert found.compilations <= 24


def test_tracebacks_have_each_frame_once() -> None:
    def fails(t):
        y = t + 1
        print("before")
        if y.sum() > -1000:
            raise ValueError("too big")
        return y

    def between(t):
        return fails(t * 2) + 1

    def outermost(t):
        a = t + 1
        return between(a)

    def lines(fn: Any) -> list[tuple[str, int | None]]:
        with pytest.raises(ValueError, match="too big") as stop:
            fn(x())
        found = traceback.extract_tb(stop.value.__traceback__)
        return [(line.name, line.lineno) for line in found if line.filename == __file__ and line.name != "lines"]

    mine, _ = compiled(outermost)
    expected = lines(outermost)
    assert [name for name, _ in expected] == ["outermost", "between", "fails"]
    assert lines(mine) == expected
    assert lines(mine) == expected


def test_an_exception_of_a_helper_is_caught_by_its_caller() -> None:
    def fails(t):
        print("in")
        raise KeyError(tuple(t.shape))

    def fn(t):
        a = t + 1
        try:
            a = fails(a)
        except KeyError as error:
            a = a * len(error.args[0])
        return a + 1

    assert resumes(fn, one, calls=3).eager == []


def test_layers_that_print() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, t):
            t = self.linear(t)
            print(t.shape)
            return t.relu()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(Noisy(), nn.Linear(3, 3), Noisy())
            self.head = nn.Linear(3, 1)

        def forward(self, t):
            t = t + 1
            return self.head(self.layers(t))

    net = Net()
    warnings.simplefilter("error")
    assert resumes(net.forward.__func__, lambda: (net, x()), calls=3).eager == []
    output = armature.explain(net)(x())
    assert output.break_count >= 1
    assert sum(frame.operators for frame in output.frames) == 6  # the second Noisy goes on in the code of the first


def test_code_objects_are_made_once() -> None:
    mine, records = compiled(three_deep)
    for _ in range(5):
        mine(x())
    assert len(records.compilations) == 4


def chain(depth: int) -> Any:
    """A function that calls another one, and so on."""
    lines = ["def f0(t):", "    return t * 2"]
    for number in range(1, depth + 1):
        lines += [f"def f{number}(t):", f"    return f{number - 1}(t) + 1"]
    namespace: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<chain>", "exec"), namespace)
    return namespace[f"f{depth}"]


def test_a_deep_chain_of_calls_is_cut_where_the_pieces_are_few() -> None:
    found = resumes(chain(200), one, calls=1)
    assert not found.eager
    # Python 3.12 counts calls through C apart, and its first releases allow few: there are more pieces.
    assert found.compilations < (180 if sys.version_info[:2] == (3, 12) else 80)
