"""A graph break ends the graph, and tracing goes on after it: the same values, output and exceptions as in eager mode."""

from __future__ import annotations

import contextlib
import gc
import io
import traceback
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import armature
from armature.errors import Unsupported
from armature.trace.bytecode.instructions import decode, instructions_of, remade_cells
from armature.trace.eval_loop import functions_of
from armature.trace.expressions import local_reads
from armature.trace.resume.frame_writer import copies
from armature.trace.resume.liveness import deletes_cells, live_variables, names_read
from tests.support.resuming import compiled, resumes


def x() -> torch.Tensor:
    return torch.linspace(-1.0, 1.0, 6).reshape(2, 3)


def one() -> tuple[torch.Tensor]:
    return (x(),)


def say(t):
    print(tuple(t.shape))


# Straight code.


def prints(t):
    y = t + 1
    print("between")
    return y * 2


def prints_twice(t, n):
    a = t + n
    print("first", n)
    b = a * 2
    print("second", tuple(b.shape))
    return a + b


def prints_first(t):
    print("start")
    return t.sin() + t.cos()


def prints_last(t):
    y = t.sin()
    print("end")
    return y


def returns_the_call(t):
    y = t.sin()
    return print(y.shape)


def keywords(t):
    y = t + 1
    print("a", "b", sep="-", end="|\n")
    return y * 2


def in_an_expression(t, n):
    return (t + 1) * n + len(input_of(t * 2)) + [t.sum(), t][1]


@armature.disable
def input_of(t):
    print("asked")
    return [1, 2]


def keeps_objects(t, items):
    made = [t * 2, items]
    table = {"made": made}
    print("now")
    made.append(t + 1)
    items.append(len(made))
    return made, table, table["made"] is made, made[1] is items


def text_of_shape(t):
    y = t * 3
    print(f"shape {y.shape} {y.dtype} {len(y)}")
    return y + 1


def text_of_numbers(t):
    y = t * 3
    print(f"mean {y.mean():.3f} of {y.shape}")
    return y + 1


def text_before_a_change(t):
    y = t * 3
    text = f"{y}"
    y.add_(100)
    print(text)
    return y + 1


def deletes(t, n):
    y = t + n
    del n
    print("gone")
    return y * 2, "n" in locals(), "y" in locals()


def looks_at_locals(t, n):
    y = t + n
    print("now")
    found = sorted(name for name in locals())
    print(found)
    return y * 2


def evaluates(t):
    y = t + 1  # noqa: F841
    z = eval("y * 2")
    return z + 1


def item(t):
    y = t * 2
    n = y.sum().item()
    return y + n


def two_items(t):
    return t + t.sum().item() + t.max().item()


class Meta(type):
    """A metaclass of the program, whose classes cannot be made while tracing."""

    @classmethod
    def __prepare__(cls, name, bases):
        return {}


def makes_a_class(t):
    y = t + 1

    class Inner(metaclass=Meta):
        value = 2

        def times(self, v):
            return v * self.value

    return Inner().times(y) + 1


def unpacks(t):
    y = t * 2
    (a, b), c = input_of(y), 3
    return y + a + b + c


def in_place(t):
    t.add_(1)
    print("added")
    t.mul_(2)
    view = t[0]
    print("viewed")
    view += 1
    return t


def random(t):
    a = torch.rand(3)
    print("drawn")
    return a + torch.rand(3)


def sets_attributes(t, box):
    box.value = t + 1
    box.count += 1
    print(box.count)
    box.count += 1
    return box.value * 2


class Box:
    def __init__(self) -> None:
        self.value: Any = 0
        self.count = 1

    def show(self) -> None:
        print("count", self.count)


def methods(t):
    box = Box()
    box.value = t * 2
    box.show()
    return box.value + 1


def slices(t):
    rows = t[0:1]
    print(rows.shape)
    return rows[:, 1:] + 1


def loops_after(t):
    print("before")
    for i in range(4):
        t = t + i
    return t


def counts_rows(t):
    found = []
    for i, row in enumerate(t, 1):
        print(i)
        found.append((i, row * 2))
    for row, n in zip(t, [5, 6]):
        print(n)
        found.append((n, row + 1))
    return found


def makes_a_function(t, n):
    print("before")
    later = lambda v, k=1: v + n + k  # noqa: E731  an argument in a cell
    n += 1
    return later(t), [n + i for i in range(2)]


STRAIGHT: list[tuple[Any, Any, int, int]] = [
    (prints, one, 2, 1),
    (prints_twice, lambda: (x(), 2), 3, 2),
    (prints_first, one, 1, 1),
    (loops_after, one, 1, 1),
    (prints_last, one, 1, 1),
    (returns_the_call, one, 1, 1),
    (keywords, one, 2, 1),
    (in_an_expression, lambda: (x(), 2), 2, 1),
    (keeps_objects, lambda: (x(), [1]), 2, 1),
    (text_of_shape, one, 2, 1),
    (text_of_numbers, one, 2, 1),
    (text_before_a_change, one, 3, 2),
    (deletes, lambda: (x(), 2), 2, 1),
    (looks_at_locals, lambda: (x(), 2), 2, 2),
    (evaluates, one, 2, 1),
    (item, one, 2, 1),
    (makes_a_class, one, 3, 1),  # the class is another one in the second call
    (unpacks, one, 2, 1),
    (in_place, one, 3, 2),
    (random, one, 2, 1),
    (sets_attributes, lambda: (x(), Box()), 2, 1),
    (methods, one, 2, 1),
    (slices, one, 2, 1),
    (counts_rows, one, 5, 4),
    (makes_a_function, lambda: (x(), 2), 1, 1),
]


@pytest.mark.parametrize(("fn", "make", "graphs", "breaks"), STRAIGHT, ids=lambda p: getattr(p, "__name__", ""))
def test_straight(fn: Any, make: Any, graphs: int, breaks: int) -> None:
    found = resumes(fn, make)
    assert found.eager == []
    assert (len(found.graphs), len(found.breaks)) == (graphs, breaks), found.graphs


# A test on a tensor.


def branches(t):
    y = t * 2
    if y.sum() > 0:
        z = y + 1
    else:
        z = y - 1
    return z * 3


def branches_without_else(t):
    y = t * 2
    if y.sum() > 0:
        y = y.relu()
    return y + 1


def returns_early(t):
    if t.sum() > 0:
        return t
    return -t * 2


def ands(t):
    a = t.sum() > 0 and t.max() > 3
    return t + 1 if a else t - 1


def ors(t):
    flag = (t.sum() > 0) or (t.min() < -3)
    return t * flag


def conditional(t):
    return (t + 1 if t.sum() > 0 else t - 1) * 2


def negates(t):
    if not t.sum() > 0:
        t = t * 2
    return t + 3


def asserts(t):
    y = t * 2
    assert (y > -100).all(), "small"
    return y + 1


def chooses(t):
    return [t, -t][int(t.sum() > 0)] + 1


@pytest.mark.parametrize(
    "fn",
    [branches, branches_without_else, returns_early, ands, ors, conditional, negates, asserts, chooses],
    ids=lambda p: p.__name__,
)
def test_branches_both_ways(fn: Any) -> None:
    signs = iter([1, 1, -1, -1, 5, 5, -5, -5] * 4)

    def make() -> tuple[torch.Tensor]:
        return (torch.full((3,), float(next(pairs))),)

    pairs = iter([sign for sign in signs for _ in range(2)])
    found = resumes(fn, make, calls=8)
    assert found.eager == []
    assert 1 <= len(found.graphs) <= 6


def test_a_branch_has_a_graph_for_each_side() -> None:
    mine, records = compiled(branches)
    for sign in (1.0, 1.0, -1.0, 1.0, -1.0):
        t = torch.full((3,), sign)
        assert torch.equal(mine(t), branches(t))
    graphs = [record.module for record in records.compilations]
    assert len(graphs) == 3


# Loops.


def prints_in_a_loop(t, n):
    for _ in range(n):
        t = t + 1
        print("round")
        t = t * 2
    return t - 1


def counts(t, n):
    for i in range(n):
        t = t + 1
        print("round", i)
    return t - 1


def enumerates(t, items):
    total = t * 0
    for i, (a, b) in enumerate(zip(items, reversed(items))):
        total = total + a * i
        print(i)
        total = total - b
    return total


def waits(t):
    n = 0
    while t.sum() < 30:
        t = t + 1
        n += 1
    return t * n


def nested_loops(t):
    for i in range(2):
        for name in ("a", "b"):
            t = t + i
            print(i, name)
        t = t * 2
    return t


def leaves_a_loop(t):
    for i in range(5):  # noqa: B007
        t = t + 1
        if t.sum() > 10:
            break
        if t.sum() > 100:
            continue
        t = t * 1.5
    else:
        print("never")
        t = t * 0
    return t + i


def items_of_a_dict(t, table):
    for name, value in table.items():
        t = t + value
        print(name)
    return t


def changes_the_list(t, items):
    for n in items:
        t = t + n
        print(n)
        if n < 3:
            items.append(n + 2)
    return t


def rows(t):
    total = 0
    for row in t:
        print(row.shape)
        total = total + row
    return total


LOOPS: list[tuple[Any, Any]] = [
    (prints_in_a_loop, lambda: (x(), 3)),
    (counts, lambda: (x(), 3)),
    (enumerates, lambda: (x(), [1, 2, 3])),
    (waits, one),
    (nested_loops, one),
    (leaves_a_loop, one),
    (items_of_a_dict, lambda: (x(), {"a": 1, "b": 2})),
    (changes_the_list, lambda: (x(), [1, 2, 5])),
    (rows, one),
]


@pytest.mark.parametrize(("fn", "make"), LOOPS, ids=lambda p: getattr(p, "__name__", ""))
def test_loops(fn: Any, make: Any) -> None:
    found = resumes(fn, make)
    assert found.eager == []
    assert len(found.graphs) >= 2
    assert found.compilations <= 16


def test_a_long_loop_takes_no_stack_and_few_compilations() -> None:
    mine, records = compiled(prints_in_a_loop)
    t = torch.zeros(2)
    warnings.simplefilter("error")
    out = mine(t, 3000)
    assert out.shape == (2,)
    assert len(records.compilations) <= 6
    before = len(records.compilations)
    mine(t, 50)
    assert len(records.compilations) <= before + 1


# Closures.


def closures(t):
    count = 0
    state = t * 2

    def add(n):
        nonlocal count, state
        count += n
        state = state + n

    add(1)
    print("once", count)
    add(2)
    print("twice", count)
    return state, count, add.__name__


def returned_closure(t):
    scale = t + 1

    def inner(v):
        return v * scale

    print("made")
    scale = scale + 1
    return inner(t)


def outer(t):
    factor = 2.0

    def fn(v):
        y = v * factor
        print("inside")
        return y + factor

    return fn(t)


def counting():
    total = 0

    def fn(t):
        nonlocal total
        total += 1
        y = t * total
        print(total)
        total += 1
        return y + total

    return fn


@pytest.mark.parametrize("fn", [closures, returned_closure, outer], ids=lambda p: p.__name__)
def test_cells(fn: Any) -> None:
    assert resumes(fn, one).eager == []


def test_a_cell_of_the_program_is_written_before_the_break_and_after() -> None:
    eager, mine = counting(), compiled(counting())[0]
    for _ in range(3):
        assert torch.equal(eager(x()), mine(x()))


# The rest of the contract.


def test_fullgraph_raises_with_the_whole_explanation() -> None:
    with pytest.raises(Unsupported) as stop:
        armature.compile(prints, backend="eager", fullgraph=True)(x())
    text = str(stop.value)
    line = prints.__code__.co_firstlineno + 2
    assert f"{__file__}:{line}" in text.splitlines()[0]
    assert 'print("between")' in text


def test_explain_shows_the_graphs_and_where_each_broke(capsys: pytest.CaptureFixture[str]) -> None:
    output = armature.explain(prints_twice)(x(), 2)
    assert (output.graph_count, output.break_count) == (3, 2)
    first = prints_twice.__code__.co_firstlineno
    assert [event.stack[-1].line - first for event in output.breaks] == [2, 4]
    assert "resumed" in output.breaks[0].outcome or "resumes" in output.breaks[0].outcome
    assert output.frames[1].function == f"prints_twice (resumed at line {first + 3})"
    assert capsys.readouterr().out == "first 2\nsecond (2, 3)\n"


def test_guards_belong_to_the_piece() -> None:
    mine, records = compiled(prints_twice)
    mine(x(), 2)
    assert len(records.compilations) == 3
    mine(x(), 2)
    assert len(records.compilations) == 3
    mine(x(), 3)  # only the first piece reads n before the break, the second prints it
    assert all("n" not in guard.split() for guard in records.compilations[2].guards)


def test_a_module_keeps_its_graphs() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 4)
            self.second = nn.Linear(4, 2)

        def forward(self, t):
            h = self.first(t).relu()
            print(h.shape)
            return self.second(h)

    net = Net()
    output = armature.explain(net)(x())
    assert (output.graph_count, output.break_count) == (2, 1)
    mine = armature.compile(net, backend="eager")
    assert torch.equal(mine(x()), net(x()))


def test_what_was_made_goes_with_the_function() -> None:
    namespace: dict[str, Any] = {}
    source = """
def program(t):
    def helper(v):
        w = v + 1
        print("in")
        return w * 2
    for i in range(3):
        t = helper(t)
        if t.sum() > 1e6:
            t = t / 2
    return t
"""
    exec(compile(source, "<a program>", "exec"), namespace)
    program = namespace.pop("program")
    codes = [weakref.ref(program.__code__)]
    mine, records = compiled(program)
    before = set(records._codes)  # of other tests
    with contextlib.redirect_stdout(io.StringIO()):
        mine(x())
    assert len(records.compilations) > 3
    codes += [code for key, code in records._codes.items() if key not in before]
    records.compilations.clear()
    del program, mine
    caches = (
        decode, instructions_of, functions_of, copies, live_variables, names_read, deletes_cells, remade_cells, local_reads
    )  # fmt: skip
    for cache in caches:  # of the last few thousand
        cache.cache_clear()
    gc.collect()
    assert [held for code in codes if (held := code()) is not None and held.co_filename == "<a program>"] == []
    assert len(codes) > 4


def test_gradients_flow_through_the_pieces() -> None:
    w = torch.ones(3, requires_grad=True)

    def fn(t):
        y = t * w
        print("between")
        return (y * y).sum()

    mine, _ = compiled(fn)
    mine(x()).backward()
    ours, w.grad = w.grad, None
    fn(x()).backward()
    assert torch.equal(ours, w.grad)


def test_a_traceback_shows_the_line_once() -> None:
    def fails(t):
        y = t + 1
        print("on")
        z = y * 2
        return z @ z

    mine, _ = compiled(fails)
    for fn in (fails, mine, mine):
        with pytest.raises(RuntimeError) as stop:
            fn(x())
        lines = [line for line in traceback.extract_tb(stop.value.__traceback__) if line.name == "fails"]
        assert [line.lineno for line in lines] == [fails.__code__.co_firstlineno + 4]
