"""Numbers drawn from Python's generators: another one in each call, in the program's order, in the compiled code."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import armature
from armature.errors import Unsupported
from armature.pipeline.session import session
from armature.testing.differential import difference

T = torch.linspace(0, 1, 7)


def floats(t):
    a = random.uniform(-1, 1) * 2 - 1
    y = t * a + random.random()
    c = random.gauss(0, 1)
    return (
        1 - (y - c) / (a + 7),
        a,
        c,
        [random.random() for _ in range(3)],
        -abs(a),
        a * t.double(),
        t.mul_(a),
        math.sqrt(abs(a)),
        max(a, c),
    )


def ints(t):
    n = random.randint(1, 9)
    return (
        t * n + random.randrange(7),
        n,
        random.getrandbits(5),
        n * 2 + 1,
        n / 2,
        n // 2,
        5 % n,
        int(n / 4),
        round(n / 3, 1),
        n > 3,
    )


def chosen(t):
    order = [3, 1, 2]
    random.shuffle(order)
    some = random.sample(range(9), 3), random.choices((1.5, 2.5), k=2), random.choice([4, 5, 6])
    return t * order[0], order, some


def seeds(t):
    a = random.random()
    random.seed(7)
    items = ["a", "b", "c"]
    random.shuffle(items)
    if random.random() < 0.5:
        t = t + 1
    return t * a, items, random.choice(items), random.sample(items, k=2)


def states(t):
    before = random.getstate()
    a = random.random()
    random.setstate(before)
    b = random.random()
    random.seed(3)
    c, known = random.random(), random.getstate()
    d = random.random()
    random.setstate(known)
    e = random.random()
    random.setstate(before)
    return t * a + b + c + d + e + random.random(), a == b, e


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.held = 0.0

    def forward(self, t):
        self.held = random.random()
        with torch.no_grad():
            y = t * self.held
        return y + self.draw()

    def draw(self):
        return random.triangular(0, 2, 1)


MODULE = Noisy()


def in_a_module(t):
    return MODULE(t), MODULE.held


def computes_nothing_else(t):
    return t, random.random()


def in_vain(t):
    try:
        return t * random.randint(3, 1)
    except ValueError as error:
        return t * random.random(), str(error)


def from_an_empty_list(t):
    try:
        random.choice([])
    except IndexError as error:
        return t + 1, str(error)


def prints(t):
    a = random.random()
    return t * a, f"{a:.3f} {random.randint(1, 9)} {a}", "%.2f %s" % (a, a), str(a)  # noqa: UP031 - it is what is tested


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "auto"])
@pytest.mark.parametrize(
    "fn", [floats, ints, chosen, seeds, states, in_a_module, computes_nothing_else, in_vain, from_an_empty_list, prints]
)
def test_one_graph_for_all_calls(fn: Callable[..., Any], backend: str) -> None:
    armature.reset()
    compiled = armature.compile(fn, backend=backend, fullgraph=True)
    results = []
    for run in (fn, compiled):
        random.seed(1)
        results.append([(run(T.clone()), hash(random.getstate())) for _ in range(5)])
    assert difference(*results) <= (1e-6 if backend == "auto" else 0.0)
    assert [record for record in session().compilations if record.recompiled_for] == []


def test_a_kernel_is_made_for_numbers_that_are_drawn() -> None:
    armature.reset()

    def fn(t):
        return (t * random.random() + random.randint(1, 9)).relu()

    armature.compile(fn, fullgraph=True)(T)
    (record,) = session().compilations
    assert len(record.graphs) == 1


def test_a_kernel_is_made_for_floats_that_change() -> None:
    armature.reset()
    compiled = armature.compile(lambda t, rate: t * rate - 1)
    for rate in (0.1, 0.2, 0.3, 0.4):
        torch.testing.assert_close(compiled(T, rate), T * rate - 1)
    assert [len(record.graphs) for record in session().compilations] == [1, 1, 1]


# Where Python needs the number.


def decides(t):
    p = random.random()
    y = t * p
    if p < 0.5:
        return y + random.random()
    return y - random.uniform(2, 3)


def crops(t):
    first = random.randint(0, t.shape[0] - 3)
    y = t[first : first + 3] * 2
    return y * random.random(), first


def shuffles_tensors(t):
    items = [t, t + 1, t + 2]
    y = t * random.random()
    random.shuffle(items)
    return y, torch.stack(items) * random.random()


def shuffles_a_tuple(t):
    items = (1, 2, 3)
    try:
        random.shuffle(items)
    except TypeError as error:
        return t * random.random(), items, str(error)


def keys(t):
    a = random.random()
    return t * a, {a: 1}, a**2, min(a, 1), random.random()


def from_the_system(t):
    y = t * random.random()
    random.seed()
    random.seed(5)
    return y * random.random(), random.randbytes(3)


@pytest.mark.parametrize("fn", [decides, crops, shuffles_tensors, shuffles_a_tuple, keys, from_the_system])
def test_a_break_where_the_number_is_needed(fn: Callable[..., Any]) -> None:
    armature.reset()
    compiled = armature.compile(fn, backend="eager")
    results = []
    for run in (fn, compiled):
        random.seed(1)
        results.append([(run(T), hash(random.getstate())) for _ in range(8)])
    assert difference(*results) == 0.0
    assert not any(record.reason for record in session().compilations)
    if fn is not crops and fn is not from_the_system:
        armature.reset()
        with pytest.raises(Unsupported):
            armature.compile(fn, backend="eager", fullgraph=True)(T)


# When something raises.


def index_out_of_range(t):
    y = t * random.random()
    z = y[torch.tensor([9])]
    return z * random.random()


def after_a_write(t):
    t.mul_(random.random())
    return t * random.random()


def overflows(t):
    return t * random.random(), random.lognormvariate(mu(t), 1.0)


def mu(t):
    return float(t.shape[0] * 100.0)


def divides(t):
    a = random.randint(0, 2)
    try:
        return t * (1 / a)
    except ZeroDivisionError:
        return t * random.random()


@pytest.mark.parametrize("fn", [index_out_of_range, after_a_write, overflows, divides])
@pytest.mark.filterwarnings("error")
def test_an_error_leaves_the_generator_as_eager_mode_does(fn: Callable[..., Any]) -> None:
    def outcome(run: Callable[..., Any]) -> object:
        try:
            return run(T.clone())
        except (IndexError, OverflowError) as error:
            return type(error), str(error)

    compiled = armature.compile(fn, backend="eager")
    results = []
    for run in (fn, compiled):
        random.seed(1)
        results.append([(outcome(run), hash(random.getstate())) for _ in range(5)])
    assert difference(*results) == 0.0


def test_no_draw_passes_one_of_the_programs_code_in_the_graph() -> None:
    def opaque(t):
        return t * random.random()

    armature.allow_in_graph(opaque)

    def fn(t):
        a = random.random()
        y = opaque(t)
        return y, a, random.random()

    compiled = armature.compile(fn, backend="eager")
    results = []
    for run in (fn, compiled):
        random.seed(1)
        results.append([run(T) for _ in range(3)])
    assert difference(*results) == 0.0


# Generators of the caller.


def draws(t, r, s):
    a = r.random()
    return t * a + s.uniform(0, 1), t.sum() * a, r.randint(1, 9), s.random(), r.random(), a


@pytest.mark.parametrize("same", [False, True])
def test_generators_of_the_caller(same: bool) -> None:
    armature.reset()
    compiled = armature.compile(draws, backend="eager", fullgraph=True)
    results = []
    for run in (draws, compiled):
        r, s = random.Random(1), random.Random(2)
        given = (r, r) if same else (r, s)
        results.append([(run(T, *given), hash(r.getstate()), hash(s.getstate())) for _ in range(4)])
    assert difference(*results) == 0.0
    assert len(session().compilations) == 1


def test_bounds_that_change() -> None:
    armature.reset()

    def fn(t, high):
        n = random.randrange(t.shape[0])
        return t.sum() * random.uniform(0, high), n, t.sum() + n, 1 - random.random() * t.mean()

    compiled = armature.compile(fn, backend="eager", dynamic=True, options={"recompile_limit": 32})
    results = []
    for run in (fn, compiled):
        random.seed(1)
        results.append([run(torch.ones(size), size / 7) for size in (3, 4, 5, 6, 7)])
    assert difference(*results) == 0.0
    assert len(session().compilations) == 3  # for two floats, then for all
